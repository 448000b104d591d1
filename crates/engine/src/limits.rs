// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Entries of the submission queue: one wake-up of a busy reactor fills about a hundred.
pub const SUBMISSIONS: u32 = 256;

/// Entries of the completion queue. What exceeds them the kernel keeps and hands over later.
pub const COMPLETIONS: u32 = 4096;

/// Default number of receive buffers of a port; a power of two.
pub const RECEIVE_BUFFERS: u16 = 64;

/// Default size of a receive buffer: a burst of 128 KiB comes in two pieces.
pub const RECEIVE_BUFFER_BYTES: usize = 128 << 10;

/// Buffers that the kernel has in its ring while few sockets are busy. It takes them in turn, so
/// all of them together (1 MiB) should stay in the cache of one core: with 4 MiB, reads of 1 MiB
/// took a fifth longer and writes of 128 KiB a third.
pub const RECEIVE_BUFFERS_HOT: usize = 8;

/// Buffers that come back until the ring holds one less, if it holds more than that.
pub const RECEIVE_BUFFERS_COOLING: u32 = 1024;

/// Receives of a connection one by one, each asked for when what came before has been looked at:
/// so many after the last one that went straight to where it belongs, then all that comes at once.
pub const SINGLE_RECEIVES: u8 = 8;

/// So many of them bring few bytes: headers, so that the data behind them can go where it belongs.
pub const SHORT_RECEIVES: u8 = 4;

/// Bytes of such a receive: dozens of headers, and what is copied of a segment is little of it.
pub const SHORT_RECEIVE_BYTES: usize = 4 << 10;

/// Sockets that a port on io_uring asks itself while it spins: each costs a system call a turn.
pub const ASKED_MAX: usize = 16;

/// Turns of others without anything after which a socket is left to the kernel again.
pub const ASKED_MISSES_MAX: u8 = 32;

/// Largest number of receive buffers that the kernel accepts in one ring.
pub const RECEIVE_BUFFERS_MAX: u16 = 1 << 15;

/// Orders that wait for a polling core: a busy turn of a pump makes about a hundred. More wait with
/// the host.
pub const ORDERS: usize = 1024;

/// Events that wait for a host of a polling core; with more, the core leaves them to the kernel.
pub const EVENTS: usize = 1024;

/// Elements of one gather list that one system call takes (`IOV_MAX` of Linux).
pub const GATHER_MAX: usize = 1024;

/// Readiness reports that one `epoll_wait` fetches.
pub const READY_MAX: usize = 256;

/// Bytes that one socket may receive per readiness report before the others have their turn.
pub const RECEIVE_BUDGET_BYTES: usize = 512 << 10;

/// Connections that one listening socket may accept per readiness report.
pub const ACCEPT_BUDGET: u32 = 64;

/// Threads that wait for files on behalf of one epoll port: enough to keep a disk busy, few
/// enough not to crowd the reactors.
pub const FILE_THREADS_MAX: usize = 4;

/// Threads that do chores of one port: rare work, mostly on one disk.
pub const CHORE_THREADS_MAX: usize = 2;

/// Files that a port knows at most; their ids are below this.
pub const FILES_MAX: u32 = 1 << 16;

/// Pause before accepting again when the process has no descriptor or memory left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Longest wait for the lock of a file or the port of a listening socket that somebody holds: the
/// kernel takes some milliseconds to end the work of a process that was killed, and to take down
/// its rings.
pub const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// Time between two tries to get it.
pub const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// Most devices below each other that are followed to a file: file, loop device, partition, RAID,
/// encryption, volume; more would be a circle.
pub const DEVICES_DEPTH_MAX: usize = 8;

/// Symbolic links that are followed, as many as the kernel does.
pub const LINKS_MAX: usize = 40;

/// Longest record of who a file is: more than its numbers can take, 71 bytes.
pub const RECORD_LEN_MAX: usize = 96;

/// Longest note of which file belongs to another: the longest name that the system takes, 4096
/// bytes, behind numbers of two files.
pub const COMPANION_LEN_MAX: usize = 4096 + 128;

/// Connections that the kernel keeps for a listening socket until they are accepted.
pub const LISTEN_BACKLOG: i32 = 4096;

/// What may be on its way to us on one connection, bytes: eight writes of 128 KiB.
pub const WINDOW_MIN: i32 = 1 << 20;

/// Memory for frames of a packet socket: what 10 Gbit/s bring while its thread waits three
/// milliseconds for a processor.
pub const PACKET_RING_BYTES: usize = 4 << 20;

/// It is made of blocks, whose pages the system must find side by side.
pub const PACKET_BLOCK_BYTES: usize = 64 << 10;

/// Room for a frame in it, by what the interface carries: a standard frame at least, and a jumbo
/// frame of 9000 bytes at most, which is all that is sent.
pub const PACKET_SLOT_BYTES_MIN: usize = 2048;

/// See there.
pub const PACKET_SLOT_BYTES_MAX: usize = 16 << 10;

/// Memory for frames of AF_XDP, by queue of an interface: half for those that come, as many as a
/// packet socket takes of standard ones, half for those that go.
pub const XDP_MEMORY_BYTES: usize = 4 << 20;

/// It is made of chunks: what a standard frame needs with what a driver may put before it.
pub const XDP_CHUNK_BYTES_MIN: u32 = 2048;

/// For longer frames: a page, which is the most that all kernels take. What is longer lies in
/// several of them.
pub const XDP_CHUNK_BYTES_MAX: u32 = 4096;

/// Room before a frame that has come (XDP_PACKET_HEADROOM).
pub const XDP_HEADROOM_BYTES: u32 = 256;

/// Longest frame that is sent or taken: the usual most of adapters, 9216 bytes, with Ethernet's
/// header and a tag of a VLAN.
pub const XDP_FRAME_BYTES_MAX: usize = 9216 + 14 + 4;

/// Queues of an interface that are served: each takes memory of its own, which is locked.
pub const XDP_QUEUES_MAX: u32 = 16;

/// So long a queue may be that of a socket which was closed: some grace periods of RCU.
pub const XDP_QUEUE_PATIENCE: Duration = Duration::from_millis(400);

/// Frames that the kernel is called for at once: it sends no more in one call (TX_BATCH_SIZE).
pub const XDP_KICK_FRAMES: u32 = 32;

/// Calls at once, so that an interface that takes nothing keeps nobody.
pub const XDP_KICKS_MAX: usize = 8;

/// Default longest time to spin: more than a round trip on the same host, far less than a disk.
pub const SPIN_MAX: Duration = Duration::from_micros(100);

/// What sleeping adds to a wait (measured in virtual machines: 30 to 40 microseconds for each
/// side). A wait that was slept through counts as shorter by this.
pub const WAKE_COST: Duration = Duration::from_micros(60);

const _: () = assert!(XDP_MEMORY_BYTES.is_multiple_of(2 * XDP_CHUNK_BYTES_MAX as usize));
const _: () = assert!(PACKET_RING_BYTES.is_multiple_of(PACKET_BLOCK_BYTES));
const _: () = assert!(PACKET_BLOCK_BYTES.is_multiple_of(PACKET_SLOT_BYTES_MAX));
const _: () = assert!(RECEIVE_BUFFERS.is_power_of_two());
const _: () = assert!(RECEIVE_BUFFERS_MAX >= RECEIVE_BUFFERS);
const _: () = assert!(COMPLETIONS >= SUBMISSIONS);
const _: () = assert!(SHORT_RECEIVES <= SINGLE_RECEIVES);
const _: () = assert!(SHORT_RECEIVE_BYTES <= RECEIVE_BUFFER_BYTES);
const _: () = assert!(RECEIVE_BUDGET_BYTES >= RECEIVE_BUFFER_BYTES);
