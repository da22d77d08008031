//! What `explain` says of programs that wait for the device.

use forerun_testkit::{installed, within};
use serde_json::Value;

use crate::device::Device;

/// Reads pages of the large file in no order, by calls that move no position.
const READS: &str = "
import os
fd = os.open('large', os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
pages = os.fstat(fd).st_size // 4096
for at in range(pages):
    os.pread(fd, 4096, at * 167 % pages * 4096)
";

#[test]
fn reads_that_were_not_observed_get_no_verdict_but_all_remedies() {
    let test = "reads_that_were_not_observed_get_no_verdict_but_all_remedies";
    if !installed(test, "python3") {
        return;
    }
    let Some(device) = Device::new(test) else { return };
    within(move || {
        let forerun = |flags: &[&str]| {
            let words = [env!("CARGO_BIN_EXE_forerun"), "explain", "--observe", "proc"];
            let words = [&words[..], flags, &["--", "python3", "-ISc", READS]].concat();
            let (status, output, errors) = device.run(false, &words);
            assert_eq!(status, Some(0), "{errors}");
            (output, errors)
        };
        let (json, _) = forerun(&["--json"]);
        let explained: Value = serde_json::from_str(&json).expect("one JSON object");
        let prediction = &explained["prediction"];
        let told = [&prediction["verdict"], &prediction["reason"]];
        assert_eq!(told, ["unknown", "not-seen"], "{json}");
        let (_, errors) = forerun(&[]);
        for told in [
            "no verdict: ",
            "were not observed",
            "forerun explain --observe preload",
            "forerun run --observe preload",
            "forerun warm PATHS",
        ] {
            assert!(errors.contains(told), "{told}: {errors}");
        }
        assert!(!errors.contains("nothing to gain"), "{errors}");
    });
}
