// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::{Exactly, FileSpec, Filter, RbdSpec, SizeError, Spec, parse_bytes, parse_size};
use crate::filter::{Delayed, Fault, Rate, When};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::time::Duration;
use proptest::prelude::*;

const USAGE: &str = "memory:SIZE, file:PATH, rbd:POOL/IMAGE, iscsi://HOST/TARGET/LUN, scsi:NODE, \
                     iso:PATH, stripe:CHUNK(STORE;STORE;...) or null:SIZE";

fn file(path: &str) -> FileSpec {
    FileSpec {
        path: path.to_string(),
        size: None,
        direct: false,
        read_only: false,
        sync: false,
        raw: false,
    }
}

#[test]
fn words_of_each_kind() {
    let words = [
        ("memory:1G", Spec::Memory { bytes: 1 << 30 }),
        ("null:512", Spec::Null { bytes: 512 }),
        ("file:/dev/sdb", Spec::File(file("/dev/sdb"))),
        ("file:a:b", Spec::File(file("a:b"))),
        (
            "file:disk.img,size=8M,sync,direct",
            Spec::File(FileSpec {
                size: Some(8 << 20),
                direct: true,
                sync: true,
                ..file("disk.img")
            }),
        ),
        ("file:x,format=raw", Spec::File(FileSpec { raw: true, ..file("x") })),
        ("file:x,readonly", Spec::File(FileSpec { read_only: true, ..file("x") })),
    ];
    for (word, spec) in words {
        assert_eq!(word.parse(), Ok(spec), "{word}");
    }
}

#[test]
fn an_image_of_ceph_has_a_place_and_options() {
    let image = |pool: &str, name: &str| RbdSpec {
        pool: pool.to_string(),
        namespace: None,
        image: name.to_string(),
        snapshot: None,
        user: None,
        conf: None,
        keyring: None,
        busy: None,
        create: false,
        size: None,
    };
    let some = |text: &str| Some(text.to_string());
    for (word, spec) in [
        ("rbd:rbd/disk", image("rbd", "disk")),
        ("rbd:a b:c/x;y=z(1)", image("a b:c", "x;y=z(1)")),
        (
            "rbd:p/n/i@s,id=u,conf=/a/c,keyring=/a/k",
            RbdSpec {
                namespace: some("n"),
                snapshot: some("s"),
                user: some("u"),
                conf: some("/a/c"),
                keyring: some("/a/k"),
                ..image("p", "i")
            },
        ),
        (
            "rbd:p/i,busy=1500ms",
            RbdSpec { busy: Some(Duration::from_millis(1500)), ..image("p", "i") },
        ),
        (
            "rbd:p/i,size=1G,create",
            RbdSpec { create: true, size: Some(1 << 30), ..image("p", "i") },
        ),
    ] {
        assert_eq!(word.parse(), Ok(Spec::Rbd(spec.clone())), "{word}");
        assert_eq!(format!("rbd:{spec}").parse(), Ok(Spec::Rbd(spec)), "{word}");
    }
    for word in ["rbd:p/i,busy=5s", "rbd:p/i,busy=1500ms", "rbd:p/i,busy=7us", "rbd:p/i,delay=60s"]
    {
        let spec: Spec = word.parse().expect(word);
        assert_eq!(spec.to_string(), word, "as people write it");
    }
    let read_only = Spec::Rbd(image("p", "i")).filtered(Filter::ReadOnly);
    assert_eq!("rbd:p/i,readonly".parse(), Ok(read_only));
    for word in ["", "p", "p/", "/i", "p//i", "p/n/i/x", "p/i@", "@s", "p/i@s@t", "p@s/i"] {
        let error = format!("rbd:{word}").parse::<Spec>().expect_err(word).to_string();
        assert!(error.contains("names no image of Ceph: write rbd:POOL"), "{error}");
    }
    for (options, said) in [
        ("create", "`create` and `size` together"),
        ("size=1G", "`create` and `size` together"),
        ("id=", "option `id` of store `rbd:` has the value ``"),
        ("id=client.lunwire", "id is `lunwire`, without `client.`: write id=lunwire"),
        ("conf", "option `conf` of store `rbd:`"),
        ("keyring=a,keyring=b", "option `keyring` of store `rbd:` is given twice"),
        ("busy=5m", "option `busy` of store `rbd:` has the value `5m`"),
        ("busy=1s,busy=2s", "option `busy` of store `rbd:` is given twice"),
        ("create,create,size=1M", "option `create` of store `rbd:` is given twice"),
        ("create=1,size=1M", "it takes none"),
        ("size=7,create", "a size is at least 512 bytes"),
        ("atomic", "option `atomic` of store `rbd:` is unknown: it has id=USER"),
        ("sync", "option `sync` of store `rbd:` is unknown"),
    ] {
        let error = format!("rbd:p/i,{options}").parse::<Spec>().expect_err(options).to_string();
        assert!(error.contains(said), "{options}: {error}");
    }
    let error = "rbd:p/i@s,create,size=1M".parse::<Spec>().expect_err("no").to_string();
    assert!(error.contains("a snapshot cannot be made"), "{error}");
}

#[test]
fn errors_say_what_would_be_right() {
    let errors = [
        ("memory", "store `memory` has no argument: write memory:SIZE, such as memory:1G"),
        ("", &format!("store `` has no argument: write {USAGE}")),
        ("ramdisk:1G", &format!("store kind `ramdisk` is unknown: write {USAGE}")),
        (
            "scsi",
            "store `scsi` has no argument: write scsi:NODE[,timeout=TIME], such as scsi:/dev/sg1",
        ),
        (
            "scsi:",
            "path of store `scsi:` is empty: write scsi:NODE[,timeout=TIME], such as scsi:/dev/sg1",
        ),
        (
            "scsi:/dev/sg1,readonly",
            "option `readonly` of store `scsi:` is unknown: it has timeout=TIME",
        ),
        (
            "scsi:/dev/sg1,timeout=2d",
            "option `timeout` of store `scsi:` has the value `2d`: \
             a time up to 86400s, such as 120s is right",
        ),
        (
            "stripe:64K(memory:1M;scsi:/dev/sg1)",
            "`scsi:` cannot be a part of a stripe: use file: with its block device",
        ),
        (
            "memory:1GX",
            "size of store `memory:` is `1GX`: \
             a size is a number of bytes, also with K, M, G, T or P (powers of 1024) or KB, MB, \
             GB, TB or PB (of 1000), such as 512M or 1.5G",
        ),
        ("memory:0", "size of store `memory:` is `0`: a size is at least 512 bytes"),
        (
            "null:1000",
            "size of store `null:` is `1000`: \
             a size is a multiple of 512 bytes: 512 and 1024 are the nearest",
        ),
        (
            "memory:16777216T",
            "size of store `memory:` is `16777216T`: \
             a size is at most 9223372036854775807 bytes, \
             which is a little less than 8 EiB: 8191P is right",
        ),
        (
            "memory:1G,sync",
            "option `sync` of store `memory:` is unknown: \
             it has readonly, discard=off, physical=, atomic, delay=, error=, limit= and log",
        ),
        (
            "file:",
            "path of store `file:` is empty: \
             write file:PATH[,size=SIZE][,direct][,readonly][,sync][,format=raw]",
        ),
        (
            "file:a,size=1,sync",
            "option `size` of store `file:` is `1`: a size is at least 512 bytes",
        ),
        (
            "file:a,read-only",
            "option `read-only` of store `file:` is unknown: \
             it has size=SIZE, direct, readonly, sync, format=raw, discard=off, physical=, delay=, \
             error=, limit= and log",
        ),
        ("file:a,sync,sync", "option `sync` of store `file:` is given twice: leave one out"),
        ("file:a,size=1M,size=1M", "option `size` of store `file:` is given twice: leave one out"),
        (
            "file:a,direct=yes",
            "option `direct` of store `file:` has the value `yes`: it takes none",
        ),
        ("memory:1M,log=a", "option `log` of store `memory:` has the value `a`: it takes none"),
        (
            "memory:1M,discard=on",
            "option `discard` of store `memory:` has the value `on`: off is right",
        ),
        (
            "memory:1M,delay=5",
            "option `delay` of store `memory:` has the value `5`: \
             TIME, read:TIME or write:TIME, such as 10ms (us, ms, s; up to 60s) is right",
        ),
        ("iso:", "path of store `iso:` is empty: write iso:PATH, such as iso:/srv/install.iso"),
        ("stripe:64K(memory:1M)", "store `stripe:`: a stripe has 2 to 64 stores, not 1"),
        (
            "stripe:100K(memory:1M;memory:1M)",
            "store `stripe:`: 102400 bytes is no chunk: a power of two from 4K to 4M is right",
        ),
        (
            "stripe:64K(memory:1M;memory:1)",
            "store 1 of the stripe: \
             size of store `memory:` is `1`: a size is at least 512 bytes",
        ),
        ("stripe:64K(iso:a;memory:1M)", "`iso:` cannot be a part of a stripe: use file:PATH"),
    ];
    for (word, text) in errors {
        let error = word.parse::<Spec>().map_err(|error| error.to_string());
        assert_eq!(error, Err(text.to_string()));
    }
    for word in [
        "stripe:64K",
        "stripe:64K(memory:1M;memory:1M",
        "stripe:64K(memory:1M;memory:1M))",
        "stripe:64K(memory:1M;memory:1M)log",
    ] {
        let error = word.parse::<Spec>().expect_err("unbalanced").to_string();
        assert!(error.contains("parentheses"), "{word}: {error}");
    }
}

#[test]
fn filters_stack_in_the_order_in_which_they_are_written() {
    let memory = || Spec::Memory { bytes: 1 << 20 };
    let word = "memory:1M,delay=read:10ms,limit=500iops,limit=20M/s,error=write:7,log";
    let delay = Filter::Delay { which: Delayed::Reads, length: Duration::from_millis(10) };
    let error = Filter::Error { fault: Fault::Write, when: When::Every(7) };
    let spec = memory()
        .filtered(delay)
        .filtered(Filter::Limit(Rate::Operations(500)))
        .filtered(Filter::Limit(Rate::Bytes(20 << 20)))
        .filtered(error)
        .filtered(Filter::Log);
    assert_eq!(word.parse(), Ok(spec));
    let within = When::Within { offset: 0, length: 4096 };
    let spec = memory().filtered(Filter::Error { fault: Fault::Read, when: within });
    assert_eq!("memory:1M,error=read@0+4K".parse(), Ok(spec));
    // What a file can do itself is no filter, wherever it is written.
    let spec = Spec::File(FileSpec { read_only: true, sync: true, ..file("x") });
    let spec = spec.filtered(Filter::NoDiscard);
    assert_eq!("file:x,sync,discard=off,readonly".parse(), Ok(spec));
    assert_eq!("memory:1M,readonly".parse(), Ok(memory().filtered(Filter::ReadOnly)));
    let many = format!("memory:1M{}", ",log".repeat(17));
    assert!(many.parse::<Spec>().is_err());
}

#[test]
fn filters_that_mean_nothing_are_refused() {
    for word in [
        "delay",
        "delay=",
        "delay=0ms",
        "delay=61s",
        "delay=-1ms",
        "delay=all:1ms",
        "error",
        "error=",
        "error=seek",
        "error=read:0",
        "error=read@4K",
        "error=flush@0+4K",
        "limit=0iops",
        "limit=5",
        "limit=iops",
        "limit=1000/s",
        "discard",
        "readonly=yes",
        "log=1",
    ] {
        let word = format!("memory:1M,{word}");
        assert!(word.parse::<Spec>().is_err(), "{word}");
    }
    let error = "sleep".parse::<Filter>().expect_err("no filter").to_string();
    assert_eq!(
        error,
        "`sleep` is no filter: \
         readonly, discard=off, physical=, delay=, error=, limit= and log are right"
    );
}

#[test]
fn stripes_hold_any_disk() {
    let word = "stripe:64K(file:/dev/sdb,direct;memory:1M,delay=1ms;\
                stripe:4K(memory:1M;null:1M)),log";
    let inner = Spec::Stripe {
        chunk: 4096,
        stores: vec![Spec::Memory { bytes: 1 << 20 }, Spec::Null { bytes: 1 << 20 }],
    };
    let delay = Filter::Delay { which: Delayed::All, length: Duration::from_millis(1) };
    let first = Spec::File(FileSpec { direct: true, ..file("/dev/sdb") });
    let second = Spec::Memory { bytes: 1 << 20 }.filtered(delay);
    let spec = Spec::Stripe { chunk: 65_536, stores: vec![first, second, inner] };
    let spec = Spec::Filtered { behind: Box::new(spec), filter: Filter::Log };
    assert_eq!(word.parse(), Ok(spec.clone()));
    assert_eq!(spec.to_string().parse(), Ok(spec));
    let mut deep = "memory:1M".to_string();
    for _ in 0..10 {
        deep = format!("stripe:64K({deep};{deep})");
    }
    assert!(deep.parse::<Spec>().is_err(), "bounded, however deep");
}

#[test]
fn a_cd_is_one_behind_its_filters_too() {
    let spec: Spec = "iso:/srv/a.iso,limit=1M/s".parse().expect("a CD");
    assert!(spec.is_optical());
    assert_eq!(spec.to_string(), "iso:/srv/a.iso,limit=1048576/s");
    assert!(!"file:/srv/a.iso".parse::<Spec>().expect("a disk").is_optical());
}

#[test]
fn sizes() {
    assert_eq!(parse_size("8388607T"), Ok(8_388_607 << 40));
    assert_eq!(parse_size("1k"), Ok(1024));
    for text in ["8388608T", "8E", "8EiB", "8192P", "16E", "9.3EB", "18446744073709551615E"] {
        assert_eq!(parse_size(text), Err(SizeError::TooLarge), "{text}");
    }
    assert_eq!(parse_size("8191P"), Ok(8191 << 50));
    assert_eq!(parse_size("99999999999999999999"), Err(SizeError::TooLarge));
    for text in ["", "K", "-1K", "+1K", ".5G", "1.G", "1.5.2G", "1 G", "1GK", "0x200", "\u{661}"] {
        assert_eq!(parse_size(text), Err(SizeError::NotANumber), "{text}");
    }
    for (text, bytes) in [
        ("0", 0),
        ("4kib", 4096),
        ("4KB", 4000),
        ("1.5G", 3 << 29),
        ("0.25TiB", 1 << 38),
        ("1.000000M", 1 << 20),
        ("2.5GB", 2_500_000_000),
        ("7B", 7),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
    }
    for text in ["0.5", "1.3K", "0.0000000000001T"] {
        assert_eq!(parse_bytes(text), Err(SizeError::NotWholeBytes), "{text}");
    }
    assert_eq!(parse_bytes("18446744073709551615.5T"), Err(SizeError::TooLarge));
}

#[test]
fn a_size_between_two_names_both() {
    for (text, below, above) in [
        ("100MB", 99_999_744, 100_000_256),
        ("513", 512, 1024),
        ("1.3K", 1024, 1536),
        ("9223372036854775296.5", 9_223_372_036_854_775_296, 1 << 63),
    ] {
        let error = SizeError::NotWholeBlocks { below, above };
        assert_eq!(parse_size(text), Err(error), "{text}");
        assert!(error.to_string().contains(&format!("{below} and {above}")), "{error}");
    }
    assert_eq!(parse_size("511"), Err(SizeError::Zero));
    assert_eq!(parse_size("0.5"), Err(SizeError::Zero));
}

#[test]
fn sizes_are_written_as_they_are_read() {
    for (bytes, text) in [
        (0, "0"),
        (512, "512"),
        (3 << 20, "3M"),
        (1536, "1536"),
        (5 << 40, "5T"),
        (1 << 62, "4194304T"),
    ] {
        assert_eq!(Exactly(bytes).to_string(), text);
        assert_eq!(parse_bytes(text), Ok(bytes));
    }
}

fn filter() -> impl Strategy<Value = Filter> {
    let which = prop_oneof![Just(Delayed::All), Just(Delayed::Reads), Just(Delayed::Writes)];
    let fault = prop_oneof![Just(Fault::Read), Just(Fault::Write), Just(Fault::Space)];
    let within = (0_u64..1 << 40, 1_u64..1 << 40)
        .prop_map(|(offset, length)| When::Within { offset: offset * 512, length: length * 512 });
    let when = prop_oneof![(1_u64..).prop_map(When::Every), within];
    prop_oneof![
        Just(Filter::ReadOnly),
        Just(Filter::NoDiscard),
        Just(Filter::Log),
        (which, 1_u64..60_000_000)
            .prop_map(|(which, us)| Filter::Delay { which, length: Duration::from_micros(us) }),
        (fault, when).prop_map(|(fault, when)| Filter::Error { fault, when }),
        (1_u64..).prop_map(|rate| Filter::Limit(Rate::Operations(rate))),
        (1_u64..1 << 50).prop_map(|rate| Filter::Limit(Rate::Bytes(rate * 512))),
    ]
}

proptest! {
    #[test]
    fn no_text_panics(word: String) {
        let _ = word.parse::<Spec>();
        let _ = format!("file:{word}").parse::<Spec>();
        let _ = format!("stripe:{word}").parse::<Spec>();
        let _ = format!("rbd:{word}").parse::<Spec>();
        let _ = format!("memory:1M,{word}").parse::<Spec>();
        let _ = word.parse::<Filter>();
        let _ = parse_size(&word);
    }

    #[test]
    fn a_shown_filter_parses_to_the_same(filters in proptest::collection::vec(filter(), 0..5)) {
        let memory = Spec::Memory { bytes: 512 };
        let spec = filters.into_iter().fold(memory, Spec::filtered);
        prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
    }

    #[test]
    fn a_shown_word_parses_to_the_same(
        path in "[^,]+",
        blocks in proptest::option::of(1..1_u64 << 50),
        flags in any::<[bool; 4]>(),
    ) {
        let [direct, read_only, sync, raw] = flags;
        let size = blocks.map(|blocks| blocks * 512);
        let spec = Spec::File(FileSpec { path, size, direct, read_only, sync, raw });
        prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        let spec = Spec::Memory { bytes: size.unwrap_or(512) };
        prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
    }
}

#[test]
fn disks_of_other_targets_are_urls() {
    let url = "iscsi://h:3261/iqn.2026-01.test:d/1?transport=iser";
    let spec = |word: &str| match word.parse() {
        Ok(Spec::Remote(spec)) => spec,
        other => panic!("{word}: {other:?}"),
    };
    assert_eq!(spec(url).url, url);
    let words = [
        "iser://[::1]/iqn.2026-01.test:d/1",
        "ether://02:00:5e:10:00:01%eth0/iqn.2026-01.test:d/1",
        "iscsi://iqn.2026-01.test:user@h/iqn.2026-01.test:d/1,secret-file=/s,wait=300s,busy=5s",
        "iscsi://user@h/t/1,secret-file=/s,mutual-user=u,mutual-secret-file=/m",
    ];
    for word in words {
        assert_eq!(Spec::Remote(spec(word)).to_string(), word);
    }
    let filtered: Spec = "iscsi://h/t/1,readonly,wait=1s".parse().expect("a store");
    assert!(matches!(filtered.unfiltered(), Spec::Remote(disk) if disk.wait.is_some()));
    assert!("stripe:64K(iscsi://a/t/1;iscsi://b/t/1)".parse::<Spec>().is_ok());
    assert_eq!(spec("iscsi://a/t/1 iser://b/t/1,wait=5s").url, "iscsi://a/t/1 iser://b/t/1");
    assert!(filtered.protectable().is_err());
}

#[test]
fn urls_of_other_targets_hold_no_secret() {
    for word in [
        "iscsi://user%hidden@h/t/1",
        "iscsi://user:hidden@h/t/1",
        "iscsi://h/t/1?target_user=u&target_password=hidden",
        "stripe:64K(memory:1M;iscsi://user%hidden@h/t/1)",
        "iscsi://h/t/1 iscsi://user%hidden@h/t/1",
    ] {
        let error = word.parse::<Spec>().expect_err(word).to_string();
        assert!(error.contains("secret-file=FILE") && !error.contains("hidden"), "{error}");
    }
    for (word, says) in [
        ("iscsi:disk", "path of store `iscsi:` is empty: write iscsi://"),
        ("iser://", "path of store `iser:` is empty"),
        ("iscsi://h/t/1,wait=5m", "option `wait` of store `iscsi:` has the value `5m`"),
        ("iser://h/t/1,busy=1h", "option `busy` of store `iser:` has the value `1h`"),
        ("iscsi://h/t/1,wait=1s,wait=2s", "option `wait` of store `iscsi:` is given twice"),
        ("iscsi://h/t/1,secret-file=", "a file that holds one secret is right"),
        ("iscsi://h/t/1,secret-file=a,secret-file=b", "`secret-file` of store `iscsi:` is given"),
        ("iscsi://h/t/1,sync", "option `sync` of store `iscsi:` is unknown: it has secret-file"),
    ] {
        let error = word.parse::<Spec>().expect_err(word).to_string();
        assert!(error.contains(says), "{error}");
    }
}
