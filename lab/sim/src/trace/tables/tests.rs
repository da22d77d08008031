//! What the formats of `tables` make of lines.

mod lis {
    use crate::trace::check_format;
    use crate::trace::tests::{broken, requests};

    /// Why, the format, the text, and its requests: first page and count.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a [(u64, u32)]);

    #[test]
    fn lines_become_requests() {
        #[rustfmt::skip]
        let rows: &[Row] = &[
            ("blocks of 4 KiB",       "lis",          "3 2 0 0\n9 1 0 1\n", &[(3, 2), (9, 1)]),
            ("sectors",               "lis:unit=512", "7 2 0 0\n8 8 0 1\n", &[(0, 2), (1, 1)]),
            ("sectors of three blocks", "lis:unit=512", "15 10 0 0",        &[(1, 3)]),
            ("larger units",          "lis:unit=8K",  "1 2 0 0\n",          &[(2, 4)]),
            ("empty requests are none", "lis",        "1 0 0 0\n2 1 0 0\n", &[(2, 1)]),
            ("tabs, blanks",          "lis",          " 5\t1  0 0 \r\n",    &[(5, 1)]),
        ];
        for (why, format, text, expected) in rows {
            let found: Vec<_> = requests(format, text).iter().map(|r| (r.first, r.count)).collect();
            assert_eq!(found, *expected, "{why}");
        }
    }

    #[test]
    fn what_is_no_request_is_broken() {
        #[rustfmt::skip]
        let rows = [
            ("1 1 0\n",                  "has 3 fields, not 4"),
            ("1 1 0 0 0\n",              "has 5 fields, not 4"),
            ("1 x 0 0\n",                "has `x` where a size is"),
            ("1 262145 0 0\n",           "more than 262144 blocks"),
            ("18446744073709551615 9 0 0\n", "where an offset is"),
            ("17592186044416 1 0 0\n",   "past byte 2^56"),
        ];
        for (text, what) in rows {
            broken("lis", text, 1, 0, what);
        }
        assert!(check_format("lis:unit=512").is_ok() && check_format("lis:unit=513").is_err());
        assert!(check_format("lis:unit=0").is_err() && check_format("lis:unit=2M").is_err());
    }
}

mod disksim {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let text = "5265.313 0 6357144 8 0\n97900000 3 16 1 1\n  \n0 0 9 0 1\n";
        let found = requests("disksim", text);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (5_265_313_000, 0, 6_357_144 * 512, 4_096, Op::Write),
            (97_900_000, 3, 16 * 512, 512, Op::Read),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("disksim", "0 0 1 8\n", 1, 0, "has 4 fields, not 5");
        broken("disksim", "x 0 1 8 1\n", 1, 0, "where a time is");
        broken("disksim", "0 0 1 8 r\n", 1, 0, "where a number that says");
        broken("disksim", "0 0 1 8 1\n0 0 0x1 8 1\n", 2, 10, "where an offset is");
    }
}

mod sandrain {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let found = requests("sandrain", "256 4 R 0\n287 128 W\n");
        let facts: Vec<_> = found.iter().map(|r| (r.first, r.count, r.op)).collect();
        assert_eq!(facts, [(256, 4, Op::Read), (287, 128, Op::Write)]);
        assert_eq!(requests("sandrain:unit=512", "9 1 R 0\n")[0].offset(), 9 * 512);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("sandrain", "1 1\n", 1, 0, "has 2 fields, not 3 or more");
        broken("sandrain", "1 1 X\n", 1, 0, "where reading or writing is");
    }
}

mod spc {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let found = requests("spc", "0,20941264,8192,W,0.551706\r\n1, 8 ,512,r,1.5,x,y\n");
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (551_706_000, 0, 20_941_264 * 512, 8_192, Op::Write),
            (1_500_000_000, 1, 4_096, 512, Op::Read),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("spc", "0,1,512,W\n", 1, 0, "has 4 fields, not 5 or more");
        broken("spc", "0,1,512,1,0\n", 1, 0, "where reading or writing is");
        broken("spc", "0,-1,512,W,0\n", 1, 0, "`-1` where an offset is");
    }
}

mod msr {
    use crate::trace::tests::{broken, requests};
    use crate::trace::{Op, Request};

    const HM: &str = "128166372003061629,hm,0,Read,8192,4096,153\n\
                      128166372016382155,hm,1,Write,5000,9000,8\n";

    #[test]
    fn lines_become_requests() {
        let head = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
        for text in [HM.to_owned(), format!("{head}{HM}")] {
            let found = requests("msr", &text);
            let facts: Vec<_> =
                found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
            #[rustfmt::skip]
            let expected = [
                (12_816_637_200_306_162_900, 0, 8_192, 4_096, Op::Read),
                (12_816_637_201_638_215_500, 1, 5_000, 9_000, Op::Write),
            ];
            assert_eq!(facts, expected);
        }
    }

    #[test]
    fn disks_of_several_hosts_are_several_disks() {
        let text = format!("{HM}{}{HM}", HM.replace("hm", "usr"));
        let devices: Vec<u32> = requests("msr", &text).iter().map(Request::device).collect();
        assert_eq!(devices[..2], [0, 1]);
        assert_eq!(devices[4..], [0, 1]);
        assert!(devices[2] != devices[3] && devices[2..4].iter().all(|&device| device > 1));
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("msr", format!("{HM}1,hm,0,Read,8192\n"), 3, 85, "has 5 fields, not 7");
        broken("msr", "1,hm,0,Seek,8192,1,1\n", 1, 0, "reading or writing");
    }
}

mod alibaba {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let text = "device_id,opcode,offset,length,timestamp\n\
                    419,W,8792731648,16384,1577808144360767\n0,R,126703644672,4096,1\n";
        let found = requests("alibaba", text);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (1_577_808_144_360_767_000, 419, 8_792_731_648, 16_384, Op::Write),
            (1_000, 0, 126_703_644_672, 4_096, Op::Read),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("alibaba", "1,W,0,4096\n", 1, 0, "has 4 fields, not 5");
        broken("alibaba", "1,W,0,-4096,1\n", 1, 0, "where a size is");
    }
}

mod tencent {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let text = "Timestamp,Offset,Size,IOType,VolumeID\n\
                    1538323200,12910952,128,0,1063\n1538323201,8,1,1,7\n";
        let found = requests("tencent", text);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (1_538_323_200_000_000_000, 1_063, 12_910_952 * 512, 65_536, Op::Read),
            (1_538_323_201_000_000_000, 7, 4_096, 512, Op::Write),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("tencent", "1,8,1,1\n", 1, 0, "has 4 fields, not 5");
        broken("tencent", "1,8,1,R,1\n", 1, 0, "where a number that says");
    }
}
