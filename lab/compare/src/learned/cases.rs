//! The programs that `bench learned` starts, and their files.
//!
//! ```text
//!   {files}   what lab/testbed/learned.sh has made, on the slow device      {python}   `--python`
//! ```
//!
//! # Invariants
//! - A program's output is the same each time, and is compared.

/// A program that starts.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) words: &'static [&'static str],
    /// The file or folder below `{files}` without which it is left out.
    pub(super) needs: &'static str,
    /// The same program with other arguments: its list is that of another use.
    pub(super) other: &'static [&'static str],
}

/// Modules of perl, from its own library.
const PERL: &str = "use POSIX; use Data::Dumper; use File::Find; use File::Temp; \
    use Getopt::Long; use Time::Local; use Storable; use Encode; use IO::Socket::INET; \
    use HTTP::Tiny; use JSON::PP; use Digest::SHA; use MIME::Base64; use List::Util; \
    use Pod::Usage; use Text::Wrap; use Unicode::Normalize; use CPAN::Meta; use Test::More; \
    use Math::BigFloat; use Archive::Tar; use IO::Zlib; use Module::CoreList; \
    print scalar(keys %INC)";
/// Modules of ruby, from its own library.
const RUBY: &str = "%w[net/http json set csv yaml optparse erb openssl fileutils tempfile \
    logger rdoc irb rubygems bundler].each { |name| require name }; puts $\".size";

/// Every program.
pub(super) const CASES: [Case; 7] = [
    Case {
        name: "import pandas",
        words: &[
            "env",
            "PYTHONPATH={files}/site",
            "{python}",
            "-c",
            "import pandas; print(pandas)",
        ],
        needs: "site",
        other: &["env", "PYTHONPATH={files}/site", "{python}", "-c", "import numpy; print(numpy)"],
    },
    Case {
        name: "node",
        words: &["node", "{files}/node/main.js"],
        needs: "node",
        other: &["node", "{files}/node/node_modules/p95/lib/index.js"],
    },
    Case {
        name: "java",
        words: &["java", "-cp", "{files}/app.jar", "Main"],
        needs: "app.jar",
        other: &["java", "-cp", "{files}/app.jar", "-version"],
    },
    Case {
        name: "git status",
        words: &["git", "-c", "safe.directory=*", "-C", "{files}/repo", "status"],
        needs: "repo",
        other: &["git", "-c", "safe.directory=*", "-C", "{files}/repo", "log"],
    },
    Case {
        name: "sqlite3",
        words: &["sqlite3", "-readonly", "{files}/large.db", ".read {files}/queries"],
        needs: "large.db",
        other: &["sqlite3", "-readonly", "{files}/large.db", "select max(rowid) from rows"],
    },
    Case {
        name: "perl",
        words: &["env", "PERL5LIB={files}/perl", "perl", "-e", PERL],
        needs: "perl",
        other: &["env", "PERL5LIB={files}/perl", "perl", "-e", "use POSIX; print 1"],
    },
    Case {
        name: "ruby",
        words: &["ruby", "--disable-gems", "-I", "{files}/ruby", "-e", RUBY],
        needs: "ruby",
        other: &["ruby", "--disable-gems", "-I", "{files}/ruby", "-e", "require 'set'; puts 1"],
    },
];
