// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair that an adapter carries out: what is posted waits here until who drives the adapter
//! takes it, and comes back with what has become of it. Read first: RFC 5040 §5. Memory that
//! peers reach goes to a [`Registry`], which answers at once, as a pool does: a task whose memory
//! is taken back waits for nothing.
//!
//! ```text
//!   up --disconnect, Ended--> over
//! ```
//!
//! Order of polling: [`Queue::poll_post`] until there is none; [`Queue::handle`] for all that the
//! adapter has done, before the next post is taken. What peers send and read is the adapter's
//! business: it checks their keys, and nobody here hears of them.

use crate::limits::RECEIVES_MAX;
use crate::region::Memory;
use crate::region::Withdrawn;
use crate::verbs::End;
use crate::verbs::Refusal;
use crate::verbs::Work;
use crate::verbs::WorkId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use buf::Buf;
use core::fmt;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

/// What an adapter is given to do. It has what it is given until it brings that back.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // who drives it does each
pub enum Post {
    /// A buffer for one message.
    Receive(Buf),
    /// A Send or Write.
    Send(WorkId, Work),
    /// A Read into memory of ours.
    Read(WorkId, Read),
    /// Ends the connection; all that is under way comes back.
    Disconnect,
}

/// An RDMA Read.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs)] // all that a Read is
pub struct Read {
    /// Our name of the memory that it fills.
    pub sink: Stag,
    /// That memory, unless the adapter has it for another Read.
    pub buf: Option<Buf>,
    /// The place in it.
    pub sink_offset: usize,
    /// The peer's memory.
    pub source: Stag,
    /// The place there.
    pub source_offset: TaggedOffset,
    /// How many bytes.
    pub length: u32,
}

/// What an adapter has done.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a queue takes each
pub enum Done {
    /// A message has come, after all that the peer wrote before it.
    Received {
        /// The buffer.
        buf: Buf,
        /// Bytes of it that the message has.
        length: usize,
    },
    /// A Send or Write has left.
    Sent(WorkId),
    /// The bytes of a Read are in place.
    Read(WorkId),
    /// No Read fills this memory any more: before the end of the last one is told.
    Returned(Stag, Buf),
    /// The connection is over: all memory has come back, and nothing follows.
    Ended(End),
}

/// How many operations of each kind may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // one for each kind
pub struct Depths {
    /// Sends and Writes.
    pub sends: usize,
    /// Reads, which the peer serves at once.
    pub reads: usize,
    /// Buffers for messages.
    pub receives: usize,
}

/// Memory of ours that an adapter lets peers reach. A buffer they write to, a slice they read.
pub trait Registry: fmt::Debug + Send {
    /// Lets peers reach this: its key, and how they name its first byte. It is the adapter's until
    /// it is taken back.
    ///
    /// # Errors
    /// The memory, if the adapter takes no more.
    fn show(&mut self, memory: Memory) -> Result<(Stag, TaggedOffset), Memory>;

    /// From now on nobody reaches it; None if there is none of this key, or the adapter does not
    /// let go of it: then nobody has it any more.
    fn take_back(&mut self, key: Stag) -> Option<Memory>;
}

/// The upper end of a queue pair of an adapter.
#[derive(Debug)]
pub struct Queue {
    depths: Depths,
    posts: VecDeque<Post>,
    sends: usize,
    reads: usize,
    receives: usize,
    sinks: BTreeMap<u32, Sink>,
    next_sink: u32,
    /// None: peers reach nothing.
    registry: Option<Box<dyn Registry>>,
    shown: Shown,
    ended: Option<End>,
}

/// Memory that peers reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // figures for people
pub struct Shown {
    /// Its keys.
    pub keys: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// Memory that Reads fill.
#[derive(Debug)]
struct Sink {
    /// None: the adapter has it.
    buf: Option<Buf>,
    length: usize,
    /// What else goes into it, when it is here.
    waiting: Vec<(usize, Vec<u8>)>,
}

impl Queue {
    /// Of a connection that is about to begin.
    #[must_use]
    pub const fn new(depths: Depths) -> Self {
        Self {
            depths,
            posts: VecDeque::new(),
            sends: 0,
            reads: 0,
            receives: 0,
            sinks: BTreeMap::new(),
            next_sink: 1,
            registry: None,
            shown: Shown { keys: 0, bytes: 0 },
            ended: None,
        }
    }

    /// As [`Queue::new`]; peers reach what is shown.
    #[must_use]
    pub fn with_registry(depths: Depths, registry: Box<dyn Registry>) -> Self {
        Self { registry: Some(registry), ..Self::new(depths) }
    }

    /// Lets the peer reach this memory: its key, and how the peer names its first byte.
    ///
    /// # Errors
    /// The memory, if the adapter takes no more.
    pub fn show(&mut self, memory: Memory) -> Result<(Stag, TaggedOffset), Memory> {
        let Some(registry) = &mut self.registry else { return Err(memory) };
        let length = memory.len();
        let named = registry.show(memory)?;
        self.shown.keys += 1;
        self.shown.bytes += length;
        Ok(named)
    }

    /// From now on the peer does not reach it. How much it has moved nobody knows: no more than
    /// all.
    pub fn take_back(&mut self, key: Stag) -> Option<Withdrawn> {
        let memory = self.registry.as_mut()?.take_back(key)?;
        self.shown.keys = self.shown.keys.saturating_sub(1);
        self.shown.bytes = self.shown.bytes.saturating_sub(memory.len());
        let filled = u64::try_from(memory.len()).unwrap_or(u64::MAX);
        Some(Withdrawn { memory, filled })
    }

    /// What the peer reaches now.
    #[must_use]
    pub const fn shown(&self) -> Shown {
        self.shown
    }

    /// Gives a buffer for one message.
    ///
    /// # Errors
    /// The buffer, if there are as many as may be, or the connection is over.
    pub fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        if self.ended.is_some() || self.receives >= self.receives_max() {
            return Err(buf);
        }
        self.receives += 1;
        self.posts.push_back(Post::Receive(buf));
        Ok(())
    }

    /// Takes a Send or Write, to be carried out in order.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn post_send(&mut self, id: WorkId, work: Work) -> Result<(), Refusal> {
        if self.ended.is_some() {
            return Err(Refusal::Ended);
        }
        if self.sends >= self.depths.sends {
            return Err(Refusal::Full);
        }
        self.sends += 1;
        self.posts.push_back(Post::Send(id, work));
        Ok(())
    }

    /// Takes a Read, to be carried out in order.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn post_read(&mut self, id: WorkId, read: Read) -> Result<(), Refusal> {
        if self.ended.is_some() {
            return Err(Refusal::Ended);
        }
        if self.free_reads() == 0 {
            return Err(if self.depths.reads == 0 { Refusal::Depth } else { Refusal::Full });
        }
        let end =
            usize::try_from(read.length).ok().and_then(|len| read.sink_offset.checked_add(len));
        let sink = self.sinks.get(&read.sink.0);
        if sink.is_none_or(|sink| end.is_none_or(|end| end > sink.length)) {
            return Err(Refusal::Sink);
        }
        self.reads += 1;
        self.posts.push_back(Post::Read(id, read));
        Ok(())
    }

    /// Names memory that Reads fill.
    ///
    /// # Errors
    /// It is none that can be filled.
    pub fn advertise(&mut self, memory: Memory) -> Result<Stag, Memory> {
        let Memory::Sink(buf) = memory else { return Err(memory) };
        let stag = self.next_sink;
        self.next_sink = stag.wrapping_add(1).max(1);
        let sink = Sink { length: buf.len(), buf: Some(buf), waiting: Vec::new() };
        let before = self.sinks.insert(stag, sink);
        debug_assert!(before.is_none(), "names come again after a long time only");
        Ok(Stag(stag))
    }

    /// Gives such memory back; None while the adapter has it.
    pub fn withdraw(&mut self, sink: Stag) -> Option<Buf> {
        let buf = self.sinks.get_mut(&sink.0)?.buf.take()?;
        self.sinks.remove(&sink.0);
        Some(buf)
    }

    /// Puts bytes into such memory, at once or when the adapter has done with it; false if they do
    /// not fit.
    pub fn place(&mut self, sink: Stag, offset: usize, bytes: &[u8]) -> bool {
        let Some(sink) = self.sinks.get_mut(&sink.0) else { return false };
        let Some(end) = offset.checked_add(bytes.len()).filter(|end| *end <= sink.length) else {
            return false;
        };
        match &mut sink.buf {
            Some(buf) => put(buf, offset..end, bytes),
            None => sink.waiting.push((offset, bytes.to_vec())),
        }
        true
    }

    /// Ends the connection.
    pub fn disconnect(&mut self, end: End) {
        if self.ended.is_none() {
            self.ended = Some(end);
            self.posts.clear();
            self.posts.push_back(Post::Disconnect);
        }
    }

    /// What is to be done next. The memory of a Read goes with it.
    pub fn poll_post(&mut self) -> Option<Post> {
        let mut post = self.posts.pop_front()?;
        if let Post::Read(_, read) = &mut post {
            read.buf = self.sinks.get_mut(&read.sink.0).and_then(|sink| sink.buf.take());
        }
        Some(post)
    }

    /// Counts what the adapter has done, and takes back what it had.
    pub fn handle(&mut self, done: &mut Option<Done>) {
        match done {
            Some(Done::Received { .. }) => self.receives = self.receives.saturating_sub(1),
            Some(Done::Sent(_)) => self.sends = self.sends.saturating_sub(1),
            Some(Done::Read(_)) => self.reads = self.reads.saturating_sub(1),
            Some(Done::Returned(..)) => {
                if let Some(Done::Returned(stag, buf)) = done.take() {
                    self.returned(stag, buf);
                }
            }
            Some(Done::Ended(end)) => {
                self.posts.clear();
                self.ended.get_or_insert(*end);
            }
            None => {}
        }
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Reads that may still be posted.
    #[must_use]
    pub const fn free_reads(&self) -> usize {
        self.depths.reads.saturating_sub(self.reads)
    }

    /// Sends and Writes that may still be posted.
    #[must_use]
    pub const fn free_sends(&self) -> usize {
        self.depths.sends.saturating_sub(self.sends)
    }

    /// Buffers for messages that it may have.
    #[must_use]
    pub fn receives_max(&self) -> usize {
        self.depths.receives.min(RECEIVES_MAX)
    }

    /// Buffers for messages that it has.
    #[must_use]
    pub const fn receives(&self) -> usize {
        self.receives
    }

    /// All that was posted has been taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.posts.is_empty()
    }

    /// Verifies what must always hold.
    pub fn check(&self) {
        assert!(self.sends <= self.depths.sends, "work is bounded");
        assert!(self.reads <= self.depths.reads, "Reads are bounded");
        assert!(self.receives <= self.receives_max(), "receive buffers are bounded");
        let is_home = |sink: &Sink| sink.buf.is_none() || sink.waiting.is_empty();
        assert!(self.sinks.values().all(is_home), "nothing waits for memory that is here");
    }

    fn returned(&mut self, stag: Stag, mut buf: Buf) {
        let Some(sink) = self.sinks.get_mut(&stag.0) else { return };
        for (offset, bytes) in core::mem::take(&mut sink.waiting) {
            put(&mut buf, offset..offset.saturating_add(bytes.len()), &bytes);
        }
        sink.buf = Some(buf);
    }
}

fn put(buf: &mut Buf, place: core::ops::Range<usize>, bytes: &[u8]) {
    if let Some(place) = buf.get_mut(place) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buf::Pool;
    use buf::Slice;

    const DEPTHS: Depths = Depths { sends: 2, reads: 2, receives: 1 };

    fn buf(len: usize) -> Buf {
        let mut buf = Pool::new(1 << 20).expect("memory").take(len).expect("room");
        buf.fill(0);
        buf
    }

    fn write() -> Work {
        Work::Write { payload: Slice::empty(), stag: Stag(1), offset: TaggedOffset(0) }
    }

    fn read(sink: Stag, sink_offset: usize, length: u32) -> Read {
        let (source, source_offset) = (Stag(9), TaggedOffset(0));
        Read { sink, buf: None, sink_offset, source, source_offset, length }
    }

    #[test]
    fn memory_goes_with_the_first_read_and_comes_back_behind_the_last() {
        let mut queue = Queue::new(DEPTHS);
        let sink = queue.advertise(Memory::Sink(buf(8))).expect("it can be filled");
        assert_eq!(queue.post_read(WorkId(1), read(sink, 0, 4)), Ok(()));
        assert_eq!(queue.post_read(WorkId(2), read(sink, 4, 4)), Ok(()));
        assert_eq!(queue.post_read(WorkId(3), read(sink, 4, 4)), Err(Refusal::Full));
        let Some(Post::Read(_, Read { buf: Some(mut filled), .. })) = queue.poll_post() else {
            panic!("the first one takes it along")
        };
        assert!(matches!(queue.poll_post(), Some(Post::Read(_, Read { buf: None, .. }))));
        assert!(queue.withdraw(sink).is_none(), "it is not here");
        assert!(queue.place(sink, 2, &[7, 7]) && !queue.place(sink, 7, &[7, 7]));
        filled[..4].copy_from_slice(&[1, 1, 1, 1]);
        queue.handle(&mut Some(Done::Read(WorkId(1))));
        assert_eq!(queue.free_reads(), 1);
        queue.handle(&mut Some(Done::Returned(sink, filled)));
        queue.handle(&mut Some(Done::Read(WorkId(2))));
        queue.check();
        assert_eq!(queue.withdraw(sink).expect("it is here")[..], [1, 1, 7, 7, 0, 0, 0, 0]);
        assert_eq!(queue.post_read(WorkId(4), read(sink, 0, 1)), Err(Refusal::Sink));
    }

    #[test]
    fn memory_that_came_back_goes_with_a_read_that_waited() {
        let mut queue = Queue::new(DEPTHS);
        let sink = queue.advertise(Memory::Sink(buf(8))).expect("it can be filled");
        assert_eq!(queue.post_read(WorkId(1), read(sink, 0, 4)), Ok(()));
        let Some(Post::Read(_, Read { buf: Some(filled), .. })) = queue.poll_post() else {
            panic!("it takes it along")
        };
        assert_eq!(queue.post_read(WorkId(2), read(sink, 4, 4)), Ok(()));
        queue.handle(&mut Some(Done::Returned(sink, filled)));
        queue.handle(&mut Some(Done::Read(WorkId(1))));
        assert!(matches!(queue.poll_post(), Some(Post::Read(_, Read { buf: Some(_), .. }))));
    }

    #[test]
    fn reads_stay_within_the_memory_and_the_depth() {
        let mut queue = Queue::new(Depths { reads: 0, ..DEPTHS });
        let sink = queue.advertise(Memory::Sink(buf(8))).expect("it can be filled");
        assert_eq!(queue.post_read(WorkId(1), read(sink, 0, 4)), Err(Refusal::Depth));
        let mut queue = Queue::new(DEPTHS);
        let sink = queue.advertise(Memory::Sink(buf(8))).expect("it can be filled");
        for (offset, length) in [(0, 9), (8, 1), (usize::MAX, 1), (1, u32::MAX)] {
            let refused = queue.post_read(WorkId(1), read(sink, offset, length));
            assert_eq!(refused, Err(Refusal::Sink), "{offset} {length}");
        }
        assert!(queue.advertise(Memory::Source(Slice::empty())).is_err());
        assert!(queue.is_taken());
    }

    #[test]
    fn what_may_be_under_way_is_bounded() {
        let mut queue = Queue::new(DEPTHS);
        assert_eq!(queue.post_send(WorkId(1), write()), Ok(()));
        assert_eq!(queue.post_send(WorkId(2), write()), Ok(()));
        assert_eq!(queue.post_send(WorkId(3), write()), Err(Refusal::Full));
        assert!(queue.post_receive(buf(1)).is_ok() && queue.post_receive(buf(1)).is_err());
        queue.handle(&mut Some(Done::Sent(WorkId(1))));
        assert_eq!(queue.post_send(WorkId(3), write()), Ok(()));
        queue.check();
    }

    #[test]
    fn after_the_end_nothing_is_taken() {
        let mut queue = Queue::new(DEPTHS);
        assert_eq!(queue.post_send(WorkId(1), write()), Ok(()));
        queue.disconnect(End::Closed);
        assert!(matches!(queue.poll_post(), Some(Post::Disconnect)));
        assert!(queue.poll_post().is_none());
        assert_eq!(queue.post_send(WorkId(2), write()), Err(Refusal::Ended));
        assert!(queue.post_receive(buf(1)).is_err());
        queue.handle(&mut Some(Done::Ended(End::Closed)));
        assert!(queue.poll_post().is_none() && queue.ended() == Some(End::Closed));
    }

    /// Has room for one.
    #[derive(Debug, Default)]
    struct Only(Option<Memory>);

    impl Registry for Only {
        fn show(&mut self, memory: Memory) -> Result<(Stag, TaggedOffset), Memory> {
            if self.0.is_some() {
                return Err(memory);
            }
            self.0 = Some(memory);
            Ok((Stag(7), TaggedOffset(0x1000)))
        }

        fn take_back(&mut self, key: Stag) -> Option<Memory> {
            if key == Stag(7) { self.0.take() } else { None }
        }
    }

    #[test]
    fn peers_reach_what_is_shown_until_it_is_taken_back() {
        let mut queue = Queue::with_registry(DEPTHS, Box::<Only>::default());
        let shown = queue.show(Memory::Sink(buf(8)));
        assert_eq!(shown.expect("there is room"), (Stag(7), TaggedOffset(0x1000)));
        assert_eq!(queue.shown(), Shown { keys: 1, bytes: 8 });
        assert!(matches!(queue.show(Memory::Sink(buf(4))), Err(Memory::Sink(_))));
        assert!(queue.take_back(Stag(8)).is_none());
        let back = queue.take_back(Stag(7)).expect("it was shown");
        assert!(matches!(back, Withdrawn { memory: Memory::Sink(_), filled: 8 }));
        assert_eq!(queue.shown(), Shown::default());
        // Nobody reaches anything where there is nobody to show it to.
        let mut queue = Queue::new(DEPTHS);
        assert!(queue.show(Memory::Source(Slice::empty())).is_err());
        assert!(queue.take_back(Stag(7)).is_none());
    }
}
