// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files: content, ends, holes, errors.

use std::fs::File;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

use buf::Buf;
use buf::Pool;
use buf::Slice;
use engine::Config;
use engine::Event;
use engine::FileRefused;
use engine::Port;
use engine::Space;
use engine::Token;
use engine::Work;
use tempfile::NamedTempFile;

use crate::rig::Random;
use crate::rig::next;
use crate::rig::pattern;
use crate::rig::quiet;

const FILE: u32 = 3;

/// A port that knows a fresh file of `bytes` zeros as `FILE`.
fn with_file<P: Port>(make: impl Fn(&Config) -> P, bytes: u64) -> (P, NamedTempFile, Pool) {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(bytes).unwrap();
    let mut port = make(&Config::default());
    let fd = OwnedFd::from(file.reopen().unwrap());
    port.add_file(FILE, Arc::new(fd), false).unwrap();
    (port, file, Pool::new(64 << 20).unwrap())
}

fn read<P: Port>(port: &mut P, pool: &Pool, offset: u64, len: usize) -> Result<Buf, i32> {
    let buf = pool.take(len).unwrap();
    port.submit(Token(offset), Work::Read { file: FILE, offset, buf });
    match next(port) {
        (token, Event::Read { buf, result }) => {
            assert_eq!(token, Token(offset));
            let got = result?;
            assert_eq!(buf.len(), got);
            Ok(buf)
        }
        other => panic!("unexpected {other:?}"),
    }
}

fn write<P: Port>(port: &mut P, offset: u64, data: Slice, durable: bool) -> Result<(), i32> {
    port.submit(Token(1), Work::Write { file: FILE, offset, data, durable });
    match next(port) {
        (Token(1), Event::Wrote { result }) => result,
        other => panic!("unexpected {other:?}"),
    }
}

fn other<P: Port>(port: &mut P, work: Work) -> Result<(), i32> {
    port.submit(Token(2), work);
    match next(port) {
        (Token(2), Event::Synced { result } | Event::Cleared { result }) => result,
        other => panic!("unexpected {other:?}"),
    }
}

pub(crate) fn what_is_written_is_read<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, pool) = with_file(make, 16 << 20);
    for (round, len) in (0u64..).zip([1usize, 511, 512, 4096, 65_537, 8 << 20]) {
        let (offset, durable) = (round * 777, round % 2 == 0);
        let data = pattern(round, 0, len);
        write(&mut port, offset, Slice::from(data.clone()), durable).unwrap();
        other(&mut port, Work::Sync { file: FILE }).unwrap();
        let mut seen = vec![0; len];
        file.as_file().read_exact_at(&mut seen, offset).unwrap();
        assert!(seen == data);
        let buf = read(&mut port, &pool, offset, len).unwrap();
        assert!(*buf == *data);
    }
    write(&mut port, 0, Slice::empty(), true).unwrap();
    assert_eq!(pool.bytes_in_use(), 0);
}

pub(crate) fn reads_end_at_the_end<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, pool) = with_file(make, 0);
    file.as_file().write_all_at(&pattern(1, 0, 10_000), 0).unwrap();
    assert_eq!(*read(&mut port, &pool, 9000, 4096).unwrap(), pattern(1, 9000, 1000));
    assert_eq!(read(&mut port, &pool, 10_000, 4096).unwrap().len(), 0);
    assert_eq!(read(&mut port, &pool, 1 << 40, 4096).unwrap().len(), 0);
}

pub(crate) fn many_reads_at_once<P: Port>(make: impl Fn(&Config) -> P) {
    const BLOCK: usize = 4096;
    let (mut port, file, pool) = with_file(make, 0);
    let bytes = pattern(5, 0, 1024 * BLOCK);
    file.as_file().write_all_at(&bytes, 0).unwrap();
    let (mut random, mut under_way, mut left) = (Random(9), 0, 5000);
    while left > 0 || under_way > 0 {
        while under_way < 400 && left > 0 {
            let offset = (random.below(1024) * BLOCK) as u64;
            let buf = pool.take(BLOCK).unwrap();
            port.submit(Token(offset), Work::Read { file: FILE, offset, buf });
            under_way += 1;
            left -= 1;
        }
        let (token, event) = next(&mut port);
        let Event::Read { buf, result: Ok(BLOCK) } = event else { panic!("{event:?}") };
        assert!(*buf == pattern(5, token.0, BLOCK));
        under_way -= 1;
    }
    quiet(&mut port, Duration::from_millis(5));
}

pub(crate) fn punched_and_zeroed_ranges_read_as_zero<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, pool) = with_file(make, 0);
    file.as_file().write_all_at(&[7; 65_536], 0).unwrap();
    let (offset, length) = (4096, 8192);
    let punched =
        other(&mut port, Work::Clear { file: FILE, offset, length, leave: Space::Deallocated });
    if punched == Err(libc::EOPNOTSUPP) {
        println!("skipped: the temporary folder's file system has no holes");
        return;
    }
    punched.unwrap();
    let (offset, length) = (20_000, 100);
    other(&mut port, Work::Clear { file: FILE, offset, length, leave: Space::Mapped }).unwrap();
    other(&mut port, Work::Clear { file: FILE, offset, length: 0, leave: Space::Mapped }).unwrap();
    let mut expected = vec![7; 65_536];
    expected[4096..12_288].fill(0);
    expected[20_000..20_100].fill(0);
    let (offset, length) = (30_000, 5000);
    match other(&mut port, Work::Clear { file: FILE, offset, length, leave: Space::Anchored }) {
        Err(libc::EOPNOTSUPP) => println!("skipped: no space can be set aside"),
        result => {
            result.unwrap();
            expected[30_000..35_000].fill(0);
        }
    }
    assert!(*read(&mut port, &pool, 0, 65_536).unwrap() == *expected);
    // Nothing grows a file.
    let (offset, length) = (60_000, 100_000);
    other(&mut port, Work::Clear { file: FILE, offset, length, leave: Space::Mapped }).unwrap();
    assert_eq!(file.as_file().metadata().unwrap().len(), 65_536);
}

/// What may need the disk is asked for like any other work: the answer is an event.
pub(crate) fn what_is_allocated_is_told<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, _pool) = with_file(make, 1 << 20);
    file.as_file().write_all_at(&[7; 65_536], 65_536).unwrap();
    let mut ask = |number, file, offset| {
        port.submit(Token(number), Work::Allocation { file, offset });
        match next(&mut port) {
            (token, Event::Allocation { result }) if token == Token(number) => result,
            other => panic!("unexpected {other:?}"),
        }
    };
    // A file system without holes has data everywhere.
    let data = ask(1, FILE, 65_536).unwrap();
    assert!(matches!(data, (Space::Mapped, 131_072 | 1_048_576)), "{data:?}");
    let hole = ask(2, FILE, 131_072).unwrap();
    assert!(matches!(hole, (Space::Deallocated | Space::Mapped, 1_048_576)), "{hole:?}");
    assert_eq!(ask(3, FILE, 2 << 20).unwrap_err(), libc::ENXIO);
    assert_eq!(ask(4, FILE + 1, 0).unwrap_err(), libc::EBADF);
}

pub(crate) fn direct_files_take_any_memory<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, pool) = with_file(make, 1 << 20);
    let direct =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(file.path());
    let direct = match direct {
        Ok(direct) => direct,
        Err(error) => return println!("skipped: no O_DIRECT in the temporary folder: {error}"),
    };
    port.remove_file(FILE);
    port.add_file(FILE, Arc::new(OwnedFd::from(direct)), true).unwrap();
    let data = Slice::from(pattern(4, 0, 40_000));
    for from in [0, 1, 8, 511] {
        let part = data.part(from..from + 32_768).unwrap();
        write(&mut port, 4096, part.clone(), from == 8).unwrap();
        let buf = read(&mut port, &pool, 4096, 32_768).unwrap();
        assert!(*buf == *part.to_vec());
    }
    // The end of the file within what is asked for, and behind it.
    assert_eq!(read(&mut port, &pool, (1 << 20) - 4096, 8192).unwrap().len(), 4096);
    assert_eq!(read(&mut port, &pool, 1 << 20, 8192).unwrap().len(), 0);
    let mut seen = vec![0; 32_768];
    file.as_file().read_exact_at(&mut seen, 4096).unwrap();
    assert!(seen == data.part(511..511 + 32_768).unwrap().to_vec());
}

pub(crate) fn errors_are_the_kernels<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, pool) = with_file(make, 4096);
    let data = || Slice::from(vec![1; 4096]);
    // A descriptor that may not write.
    let reading = OwnedFd::from(File::open(file.path()).unwrap());
    port.remove_file(FILE);
    port.add_file(FILE, Arc::new(reading), false).unwrap();
    assert_eq!(write(&mut port, 0, data(), false), Err(libc::EBADF));
    let punch = Work::Clear { file: FILE, offset: 0, length: 512, leave: Space::Deallocated };
    assert_eq!(other(&mut port, punch), Err(libc::EBADF));
    // A device without space.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    port.remove_file(FILE);
    port.add_file(FILE, Arc::new(full.into()), false).unwrap();
    assert_eq!(write(&mut port, 0, data(), false), Err(libc::ENOSPC));
    // Ranges that no file has.
    let fd = OwnedFd::from(file.reopen().unwrap());
    port.remove_file(FILE);
    port.add_file(FILE, Arc::new(fd), false).unwrap();
    let zero = Work::Clear { file: FILE, offset: u64::MAX - 5, length: 1000, leave: Space::Mapped };
    assert!(matches!(other(&mut port, zero), Err(libc::EINVAL | libc::EFBIG)));
    assert_eq!(pool.bytes_in_use(), 0);
}

/// Work for one file never meets another one.
pub(crate) fn a_number_belongs_to_one_file<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, file, pool) = with_file(make, 4096);
    let other = NamedTempFile::new().unwrap();
    let fd = || Arc::new(OwnedFd::from(other.reopen().unwrap()));
    assert_eq!(port.add_file(FILE, fd(), false), Err(FileRefused::Taken(FILE)));
    let beyond = engine::limits::FILES_MAX;
    assert_eq!(port.add_file(beyond, fd(), false), Err(FileRefused::TooMany(beyond)));
    write(&mut port, 0, Slice::from(vec![7; 4096]), false).unwrap();
    assert_eq!(std::fs::read(file.path()).unwrap(), [7; 4096]);
    assert_eq!(other.as_file().metadata().unwrap().len(), 0);
    port.remove_file(FILE);
    port.add_file(FILE, fd(), false).unwrap();
    assert_eq!(read(&mut port, &pool, 0, 512).unwrap().len(), 0, "of the other one");
}

pub(crate) fn removed_files_are_forgotten<P: Port>(make: impl Fn(&Config) -> P) {
    let (mut port, _file, pool) = with_file(make, 4096);
    let buf = pool.take(4096).unwrap();
    port.submit(Token(0), Work::Read { file: FILE, offset: 0, buf });
    port.remove_file(FILE);
    port.remove_file(99);
    // What was under way goes on.
    assert!(matches!(next(&mut port).1, Event::Read { result: Ok(4096), .. }));
    assert_eq!(read(&mut port, &pool, 0, 512).unwrap_err(), libc::EBADF);
    assert_eq!(write(&mut port, 0, Slice::from(vec![1]), false), Err(libc::EBADF));
    assert_eq!(other(&mut port, Work::Sync { file: FILE }), Err(libc::EBADF));
}

pub(crate) fn dropping_the_port_waits_for_files<P: Port>(make: impl Fn(&Config) -> P) {
    for _ in 0..10 {
        let (mut port, _file, pool) = with_file(&make, 16 << 20);
        for token in 0..8 {
            let data = pool.take(1 << 20).unwrap().freeze();
            let offset = token << 20;
            port.submit(Token(token), Work::Write { file: FILE, offset, data, durable: true });
            let buf = pool.take(1 << 20).unwrap();
            port.submit(Token(token), Work::Read { file: FILE, offset, buf });
        }
        port.wait(Some(port.now()));
        drop(port);
        assert_eq!(pool.bytes_in_use(), 0);
    }
}
