// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::sync::mpsc;

use buf::SgList;
use buf::Slice;
use wire::pcap::RECORD_HEADER_LEN;

use super::*;
use crate::Side;
use crate::Tap;
use crate::first_sequence;

const PATIENCE: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::new(1_800_000_000, 123_456_789);

fn ends() -> (SocketAddr, SocketAddr) {
    (SocketAddr::from(([10, 0, 0, 1], 3260)), SocketAddr::from(([10, 0, 0, 2], 40_000)))
}

fn unheard(end: &End) {
    panic!("nothing ends before its time: {end}");
}

/// A packet: source port, number, acknowledgement, flags, bytes of the stream.
type Packet = (u16, u32, u32, u8, Vec<u8>);

fn packets(bytes: &[u8]) -> Vec<Packet> {
    let mut rest = &bytes[pcap::FILE_HEADER_LEN..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (header, more) = rest.split_at(RECORD_HEADER_LEN);
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!((number(0), number(4)), (1_800_000_000, 123_456_789));
        let (packet, more) = more.split_at(usize::try_from(number(8)).unwrap());
        assert_eq!(number(8), number(12), "whole");
        let tcp = &packet[20..];
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let port = u16::from_be_bytes([tcp[0], tcp[1]]);
        let data = usize::from(tcp[12] >> 4) * 4;
        found.push((port, word(4), word(8), tcp[13] & 0x17, tcp[data..].to_vec()));
        rest = more;
    }
    found
}

#[test]
fn a_connection_is_a_stream_of_tcp_from_its_first_to_its_last_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let capture = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap();
    let mut tap = Tap::open(&capture, Side::Target, ends(), NOW).unwrap();
    tap.received(NOW, b"login");
    let mut list = SgList::new();
    list.push_bytes(b"head");
    list.push(Slice::from(vec![7; pcap::SEGMENT_LEN_MAX]));
    tap.sent(NOW, &list);
    tap.ended(NOW, false);
    tap.shut(NOW);
    tap.closed(NOW);
    let figures = capture.finish(PATIENCE);
    let file = fs::read(&path).unwrap();
    assert_eq!((figures.segments, figures.lost, figures.end), (8, 0, None));
    assert_eq!(figures.bytes, file.len() as u64);
    let all = u32::try_from(pcap::SEGMENT_LEN_MAX).unwrap() + 4;
    let half = all / 2;
    let (ours, theirs) = (3260, 40_000);
    let flags: Vec<_> =
        packets(&file).into_iter().map(|(a, b, c, d, e)| (a, b, c, d, e.len())).collect();
    let first = first_sequence(NOW);
    let at = |number| first.wrapping_add(number);
    let expected = [
        (theirs, at(0), 0, 0x02, 0),
        (ours, at(0), at(1), 0x12, 0),
        (theirs, at(1), at(1), 0x10, 0),
        (theirs, at(1), at(1), 0x10, 5),
        (ours, at(1), at(6), 0x10, pcap::SEGMENT_LEN_MAX.midpoint(4)),
        (ours, at(1 + half), at(6), 0x10, pcap::SEGMENT_LEN_MAX.midpoint(4)),
        (theirs, at(6), at(1 + all), 0x11, 0),
        (ours, at(1 + all), at(7), 0x11, 0),
    ];
    assert_eq!(flags, expected);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what connections carry is for the owner");
}

/// As four FPDUs and the first bytes of a fifth come, which tshark must not see alone.
#[test]
fn no_segment_is_left_with_a_few_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let capture = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap();
    let mut tap = Tap::open(&capture, Side::Target, ends(), NOW).unwrap();
    let bytes: Vec<_> = (0..=u8::MAX).cycle().take(2 * pcap::SEGMENT_LEN_MAX + 6).collect();
    tap.received(NOW, &bytes);
    let mut list = SgList::new();
    list.push_bytes(b"head");
    list.push(Slice::from(bytes[4..].to_vec()));
    tap.sent(NOW, &list);
    capture.finish(PATIENCE);
    for (port, head) in [(40_000, &bytes[..4]), (3260, b"head")] {
        let parts: Vec<_> = packets(&fs::read(&path).unwrap())
            .into_iter()
            .filter(|packet| packet.0 == port && !packet.4.is_empty())
            .map(|packet| packet.4)
            .collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [43_656, 43_656, 43_654]);
        assert_eq!(parts.concat(), [head, &bytes[4..]].concat());
    }
}

/// A process that takes the place of another one has not seen what led to that.
#[test]
fn what_is_there_stays_where_a_capture_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let session = |capture: Capture| {
        // None: it is full.
        if let Some(mut tap) = Tap::open(&capture, Side::Target, ends(), NOW) {
            tap.received(NOW, b"login");
        }
        capture.finish(PATIENCE)
    };
    let go_on = |limit| Capture::go_on(&path, limit, |_| {}).unwrap();
    let first = session(go_on(LIMIT_DEFAULT));
    let before = fs::read(&path).unwrap();
    assert_eq!(first.bytes, before.len() as u64, "a new one begins as any other");
    // Who wrote it was killed within a record.
    let half = [before.as_slice(), &before[pcap::FILE_HEADER_LEN..][..40]].concat();
    fs::write(&path, &half).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let second = session(go_on(LIMIT_DEFAULT));
    let after = fs::read(&path).unwrap();
    assert_eq!(after, [before.as_slice(), &before[pcap::FILE_HEADER_LEN..]].concat());
    assert_eq!((second.bytes, second.segments), (after.len() as u64, first.segments * 2));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // What is there counts.
    let third = session(go_on(second.bytes));
    assert_eq!((third.bytes, third.end), (second.bytes, Some(End::Limit)));
    assert_eq!(fs::read(&path).unwrap(), after);
    // Of another order of bytes, such as of another machine: it is replaced.
    let foreign = [&[0xa1, 0xb2, 0x3c, 0x4d][..], &[0; 100]].concat();
    fs::write(&path, foreign).unwrap();
    session(go_on(LIMIT_DEFAULT));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn whoever_connects_speaks_first_and_a_reset_is_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let capture = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap();
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    tap.ended(NOW, true);
    tap.closed(NOW);
    capture.finish(PATIENCE);
    let seen = packets(&fs::read(&path).unwrap());
    let seen: Vec<_> = seen.into_iter().map(|(port, _, _, flags, _)| (port, flags)).collect();
    assert_eq!(seen, [(3260, 0x02), (40_000, 0x12), (3260, 0x10), (40_000, 0x14)]);
}

#[test]
fn a_file_gets_as_large_as_it_may_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let (tell, told) = mpsc::channel();
    let capture = Capture::create(&path, 1000, move |end| tell.send(end.clone()).unwrap()).unwrap();
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    (0..20).for_each(|_| tap.received(NOW, &[1; 100]));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(End::Limit));
    assert!(!capture.is_open());
    assert!(Tap::open(&capture, Side::Initiator, ends(), NOW).is_none());
    let figures = capture.finish(PATIENCE);
    let file = fs::read(&path).unwrap();
    assert!(file.len() <= 1000 && file.len() as u64 == figures.bytes, "{figures:?}");
    let whole = packets(&file).len() as u64;
    assert_eq!((whole, figures.end), (figures.segments, Some(End::Limit)), "whole records");
}

#[test]
fn a_file_that_is_deleted_ends_the_capture_and_that_is_told() {
    for is_busy in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.pcap");
        let (tell, told) = mpsc::channel();
        let told_end = move |end: &End| tell.send(end.clone()).unwrap();
        let capture = Capture::create(&path, LIMIT_DEFAULT, told_end).unwrap();
        let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
        fs::remove_file(&path).unwrap();
        if is_busy {
            tap.received(NOW, &[1; 100]);
        }
        assert_eq!(told.recv_timeout(PATIENCE), Ok(End::Removed), "{is_busy}");
        assert!(!capture.is_open() && !path.exists());
        tap.closed(NOW);
        assert_eq!(capture.finish(PATIENCE).end, Some(End::Removed));
        assert!(told.recv().is_err(), "it is told once");
    }
}

/// Something comes at the moment in which the file is found to be gone.
#[test]
fn who_ends_a_capture_whose_file_is_gone_does_not_wait() {
    let capture = detached(u64::MAX);
    let inner = Arc::clone(&capture.0);
    let thread = thread::spawn(move || {
        inner.write(Gone(Cell::new(false)), Kept::default(), |end| assert_eq!(end, &End::Removed))
    });
    let mut queue = capture.0.lock();
    while queue.is_busy || !queue.waiting.is_empty() {
        drop(queue);
        thread::yield_now();
        queue = capture.0.lock();
    }
    // The thread waits for something, or for the time of its next look.
    thread::sleep(LOOK + Duration::from_millis(200));
    queue.waiting.push(0);
    drop(queue);
    thread.join().unwrap();
    let begin = Instant::now();
    assert_eq!(capture.finish(PATIENCE).end, Some(End::Removed));
    assert!(begin.elapsed() < PATIENCE);
}

/// Takes all, and has no name from the second look on.
struct Gone(Cell<bool>);

impl Write for Gone {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Gone {
    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.0.replace(true)
    }
}

/// Takes so many bytes and then none.
struct Small(Arc<Mutex<Vec<u8>>>, usize);

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.0.lock().unwrap();
        let room = self.1 - taken.len();
        if room == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let bytes = &bytes[..bytes.len().min(room)];
        taken.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Small {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.lock().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn is_gone(&self) -> bool {
        false
    }
}

fn detached(limit: u64) -> Capture {
    let figures = Figures { bytes: 24, ..Figures::default() };
    let queue = Queue { waiting: pcap::file_header().to_vec(), figures, ..Queue::default() };
    Capture(Arc::new(Inner {
        path: PathBuf::new(),
        limit,
        is_open: AtomicBool::new(true),
        queue: Mutex::new(queue),
        filled: Condvar::new(),
        emptied: Condvar::new(),
    }))
}

#[test]
fn a_disk_that_is_full_ends_the_capture_and_leaves_whole_records() {
    let capture = detached(u64::MAX);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    let (inner, file) = (Arc::clone(&capture.0), Small(Arc::clone(&taken), 1000));
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        inner.write(file, Kept::default(), |end| tell.send(end.clone()).unwrap())
    });
    while capture.is_open() {
        tap.received(NOW, &[1; 100]);
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap();
    assert!(matches!(told.recv(), Ok(End::Failed(_))));
    // What follows is dropped, by whoever has a tap still.
    tap.received(NOW, &[1; 100]);
    tap.closed(NOW);
    let figures = capture.finish(Duration::ZERO);
    let file = taken.lock().unwrap().clone();
    assert_eq!(file.len() as u64, figures.bytes);
    assert!(file.len() < 24 || packets(&file).len() < 10);
    assert!(matches!(figures.end, Some(End::Failed(_))));
}

/// All of it waits when the disk is found to be full.
#[test]
fn what_fits_of_a_batch_stays() {
    let capture = detached(u64::MAX);
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    (0..20).for_each(|_| tap.received(NOW, &[1; 100]));
    let all = capture.0.lock().waiting.clone();
    let mut at = pcap::FILE_HEADER_LEN;
    let mut ends = vec![at];
    while at < all.len() {
        let length = u32::from_le_bytes(all[at + 8..at + 12].try_into().unwrap());
        at += RECORD_HEADER_LEN + usize::try_from(length).unwrap();
        ends.push(at);
    }
    for room in [0, 23, 24, 30, ends[1] - 1, ends[1], ends[1] + 1, 1000, all.len() - 1] {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut file = Small(Arc::clone(&taken), room);
        let short = append(&mut file, &all, 0).unwrap_err();
        let fits = ends.iter().rposition(|end| *end <= room);
        let wanted = fits.map_or((0, 0), |last| (last as u64, ends[last] as u64));
        assert_eq!((short.records, short.bytes), wanted, "room for {room}");
        // The same behind what is there already.
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut file = Small(Arc::clone(&taken), room);
        if let Err(short) = append(&mut file, &all[24..], 24) {
            let fits = ends.iter().rposition(|end| *end <= room + 24).unwrap();
            assert_eq!((short.records, short.bytes), (fits as u64, ends[fits] as u64 - 24));
        }
    }
    let taken = Arc::new(Mutex::new(Vec::new()));
    append(&mut Small(Arc::clone(&taken), all.len()), &all, 0).unwrap();
    assert_eq!(*taken.lock().unwrap(), all);
    // And the thread leaves as much, and says so.
    let taken = Arc::new(Mutex::new(Vec::new()));
    let file = Small(Arc::clone(&taken), 1000);
    Arc::clone(&capture.0).write(file, Kept::default(), |_| ());
    let figures = capture.finish(Duration::ZERO);
    let last = ends.iter().rposition(|end| *end <= 1000).unwrap();
    assert!(last > 3);
    assert_eq!(*taken.lock().unwrap(), all[..ends[last]]);
    assert_eq!((figures.bytes, figures.segments), (ends[last] as u64, last as u64));
}

#[test]
fn what_comes_faster_than_it_is_written_is_counted_and_the_numbers_show_the_gap() {
    let capture = detached(u64::MAX);
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    let bytes = vec![0; pcap::SEGMENT_LEN_MAX];
    let fit = QUEUE_BYTES_MAX / pcap::SEGMENT_LEN_MAX;
    (0..fit + 5).for_each(|_| tap.received(NOW, &bytes));
    let figures = capture.figures();
    assert!((5..8).contains(&figures.lost), "{figures:?}");
    assert!(capture.0.lock().waiting.len() <= QUEUE_BYTES_MAX);
    // Nobody writes: the end does not wait for ever.
    assert_eq!(capture.finish(Duration::from_millis(10)).end, None);
}

#[test]
fn what_is_no_capture_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    for content in [&b"QFI\xfb and more of a disk, longer than a header"[..], b"x"] {
        fs::write(&path, content).unwrap();
        let refused = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap_err();
        assert!(matches!(refused, OpenError::Occupied { .. }), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    for missing in [folder.path().join("none/one.pcap"), folder.path().to_owned()] {
        let refused = Capture::create(&missing, LIMIT_DEFAULT, unheard).unwrap_err();
        assert!(matches!(refused, OpenError::File { .. }), "{refused}");
    }
    // A capture makes room for the next one.
    fs::write(&path, [&pcap::file_header()[..], &[0; 5000]].concat()).unwrap();
    let capture = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap();
    assert_eq!(capture.path(), path);
    capture.finish(PATIENCE);
    assert_eq!(fs::read(&path).unwrap(), pcap::file_header());
}

#[test]
fn a_capture_that_is_being_written_is_replaced_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let capture = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap();
    let mut tap = Tap::open(&capture, Side::Target, ends(), NOW).unwrap();
    tap.received(NOW, b"login");
    let other = folder.path().join("other.pcap");
    symlink(&path, &other).unwrap();
    for path in [&path, &other] {
        let refused = Capture::create(path, LIMIT_DEFAULT, unheard).unwrap_err();
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    }
    tap.closed(NOW);
    let figures = capture.finish(PATIENCE);
    let file = fs::read(&path).unwrap();
    assert_eq!((packets(&file).len(), file.len() as u64), (5, figures.bytes));
    // Whoever has written it lets go of it.
    drop(capture);
    Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap();
}

#[test]
fn what_others_could_read_is_for_the_owner_from_now_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    for content in [&pcap::file_header()[..], &[]] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap().finish(PATIENCE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

/// The user who runs this may be root, who may give files away.
#[test]
fn what_somebody_else_could_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    fs::write(&path, []).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        let refused = Capture::create(&path, LIMIT_DEFAULT, unheard).unwrap_err();
        assert!(matches!(refused, OpenError::OfAnother { .. }), "{refused}");
    }
}

#[test]
fn what_is_no_file_is_no_place_for_a_capture() {
    let refused = Capture::create(Path::new("/dev/null"), LIMIT_DEFAULT, unheard).unwrap_err();
    assert_eq!(refused.to_string(), "/dev/null is no file; try: another name");
}

#[test]
fn what_was_not_written_is_not_counted() {
    let capture = detached(u64::MAX);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    tap.received(NOW, &[1; 1000]);
    let (inner, file) = (Arc::clone(&capture.0), Small(Arc::clone(&taken), 300));
    inner.write(file, Kept::default(), |_| ());
    let figures = capture.figures();
    let file = taken.lock().unwrap().clone();
    let segments = packets(&file).len() as u64;
    assert_eq!((figures.segments, figures.bytes), (segments, file.len() as u64));
    assert_eq!(segments, 3, "the connection begins, and the data does not fit");
}

#[test]
fn whoever_is_captured_no_more_pays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let capture = Capture::create(&path, 1000, |_| ()).unwrap();
    let mut tap = Tap::open(&capture, Side::Initiator, ends(), NOW).unwrap();
    tap.received(NOW, &[1; 2000]);
    assert!(!tap.is_open());
    let mut list = SgList::new();
    list.push(Slice::from(vec![7; pcap::SEGMENT_LEN_MAX]));
    tap.sent(NOW, &list);
    assert_eq!(tap.room(), 0, "nothing was copied");
}
