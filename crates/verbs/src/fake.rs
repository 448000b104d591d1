// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries with one device and one connection for each thread, which a test plays the adapter of:
//! it sees what was posted, and says what becomes of it, however wrong.

mod functions;

use crate::abi;
use crate::abi::CmEvent;
use crate::abi::CmId;
use crate::abi::ConnParam;
use crate::abi::Context;
use crate::abi::Device;
use crate::abi::EventChannel;
use crate::abi::Mr;
use crate::abi::Ops;
use crate::abi::SocketAddress;
use crate::abi::Wc;
use crate::api::Api;
use rustix::event::EventfdFlags;
use rustix::event::eventfd;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

/// What was posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) id: u64,
    /// None: a buffer for a message.
    pub(crate) opcode: Option<i32>,
    pub(crate) flags: u32,
    pub(crate) invalidate: u32,
    pub(crate) remote: (u64, u32),
    /// Address, length and key of each piece.
    pub(crate) pieces: Vec<(u64, u32, u32)>,
}

/// The adapter of a thread.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) is_iwarp: bool,
    pub(crate) inline_max: u32,
    pub(crate) works_max: i32,
    /// Functions that fail.
    pub(crate) fails: Vec<&'static str>,
    pub(crate) posted: Vec<Posted>,
    pub(crate) completions: VecDeque<Wc>,
    /// Memory that was shown: address, length, rights.
    pub(crate) shown: BTreeMap<u32, (usize, usize, i32)>,
    pub(crate) shown_ever: u32,
    /// What was made and is not gone.
    pub(crate) live: BTreeMap<&'static str, i32>,
    /// What becomes of a step of a connection that is asked for, in place of the usual; None:
    /// nothing does.
    pub(crate) steps: BTreeMap<&'static str, Option<(i32, i32)>>,
    /// The last listener has addresses of its own family alone.
    pub(crate) keeps_to_family: bool,
    /// What the peer was told.
    pub(crate) asked: Option<(Vec<u8>, u8, u8)>,
    pub(crate) accepted: Option<(Vec<u8>, u8, u8)>,
    pub(crate) rejected: bool,
    pub(crate) disconnected: bool,
    /// It is gone from the machine: the library closes it with its last identifier.
    pub(crate) is_device_dead: bool,
    context: Option<&'static Context>,
    /// Descriptors of channels, with what waits there.
    channels: BTreeMap<i32, (OwnedFd, VecDeque<usize>)>,
    /// Where completions are told, and whether somebody asked for that.
    told: Option<(i32, bool)>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Looks at this thread's adapter, or changes it.
pub(crate) fn world<T>(with: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(with)
}

impl World {
    fn new() -> Self {
        Self { inline_max: 256, works_max: 1024, ..Self::default() }
    }

    /// Whether a function fails now.
    fn fails(&self, name: &str) -> bool {
        self.fails.contains(&name)
    }

    fn count(&mut self, what: &'static str, by: i32) {
        let count = self.live.entry(what).or_default();
        *count += by;
        assert!(*count >= 0, "{what} ends once");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live.values().all(|count| *count == 0) && self.shown.is_empty()
    }

    fn context(&mut self) -> &'static Context {
        let is_iwarp = self.is_iwarp;
        self.context.get_or_insert_with(|| {
            let mut name = [0; 64];
            name[..5].copy_from_slice(&[102, 97, 107, 101, 48]);
            let transport_type = if is_iwarp { abi::IWARP } else { 0 };
            let device = Device { ops: [0; 2], node_type: 1, transport_type, name };
            let ops = Ops {
                before: [0; 11],
                poll_cq: Some(functions::poll_cq),
                req_notify_cq: Some(functions::req_notify_cq),
                between: [0; 12],
                post_send: Some(functions::post_send),
                post_recv: Some(functions::post_recv),
                behind: [0; 5],
            };
            Box::leak(Box::new(Context { device: Box::leak(Box::new(device)), ops }))
        })
    }

    fn open_channel(&mut self, what: &'static str) -> i32 {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).expect("a descriptor");
        let number = fd.as_raw_fd();
        self.channels.insert(number, (fd, VecDeque::new()));
        self.count(what, 1);
        number
    }

    /// Something waits in a channel.
    fn put(&mut self, channel: i32, what: usize) {
        let (fd, queue) = self.channels.get_mut(&channel).expect("it is open");
        queue.push_back(what);
        rustix::io::write(&*fd, &1_u64.to_ne_bytes()).expect("there is room");
    }

    fn take(&mut self, channel: i32) -> Option<usize> {
        let (fd, queue) = self.channels.get_mut(&channel)?;
        let what = queue.pop_front()?;
        rustix::io::read(&*fd, &mut [0; 8]).expect("it was told");
        Some(what)
    }

    /// A step ends as it is to, or with this event.
    fn step(&mut self, id: usize, name: &'static str, event: i32) {
        let ends = self.steps.get(name).copied().unwrap_or(Some((event, 0)));
        if let Some((event, status)) = ends {
            let reads = if event == abi::ESTABLISHED { (12, 1) } else { (0, 0) };
            let (responder_resources, initiator_depth) = reads;
            let conn = ConnParam { responder_resources, initiator_depth, ..NO_PARAM };
            self.happen_with(id, (event, status), conn);
        }
    }

    fn happen(&mut self, id: usize, event: i32, conn: ConnParam) {
        self.happen_with(id, (event, 0), conn);
    }

    /// Happens to an identifier.
    fn happen_with(&mut self, id: usize, (event, status): (i32, i32), conn: ConnParam) {
        let raw = std::ptr::with_exposed_provenance_mut::<CmId>(id);
        // SAFETY: identifiers of this library are never freed.
        let channel = unsafe { &*raw }.channel;
        // SAFETY: nor are channels.
        let fd = unsafe { &*channel }.fd;
        let event = CmEvent { id: raw, listen_id: null_mut(), event, status, conn };
        let event = Box::leak(Box::new(event));
        self.put(fd, std::ptr::from_mut(event).expose_provenance());
    }

    fn new_id(&mut self, channel: *mut EventChannel) -> *mut CmId {
        self.count("id", 1);
        let peer = SocketAddr::from(([192, 0, 2, 9], 9999));
        Box::leak(Box::new(CmId {
            verbs: std::ptr::from_ref(self.context()).cast_mut(),
            channel,
            context: null_mut(),
            qp: null_mut(),
            local: SocketAddr::from(([192, 0, 2, 1], 3260)).into(),
            peer: peer.into(),
        }))
    }

    /// Tells of a completion, if somebody asked for that.
    pub(crate) fn complete(&mut self, completion: Wc) {
        self.completions.push_back(completion);
        if let Some((channel, asked)) = &mut self.told
            && std::mem::take(asked)
        {
            let channel = *channel;
            self.put(channel, 0);
        }
    }

    /// An operation is complete.
    pub(crate) fn finish(&mut self, posted: &Posted, status: i32) {
        let length = posted.pieces.iter().map(|piece| piece.1).sum();
        self.complete(Wc { id: posted.id, status, byte_len: length, ..Wc::default() });
    }

    /// The bytes of a piece, which must be memory that was shown.
    pub(crate) fn bytes(&self, piece: (u64, u32, u32), access: i32) -> &'static mut [u8] {
        let (address, length, key) = piece;
        let (start, count) =
            (usize::try_from(address).expect("one"), usize::try_from(length).expect("one"));
        let (base, size, rights) = self.shown.get(&key).copied().expect("a key that was given");
        assert!(base <= start && start + count <= base + size, "it is within what was shown");
        assert_eq!(rights & access, access, "it may be written to");
        let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: who posts gives the memory until the end is told, and looks at nothing of it.
        unsafe { std::slice::from_raw_parts_mut(place, count) }
    }

    /// A message comes, into the oldest buffer for one.
    pub(crate) fn deliver(&mut self, bytes: &[u8]) -> Posted {
        let at = self.posted.iter().position(|one| one.opcode.is_none()).expect("a buffer");
        let posted = self.posted.remove(at);
        let place = self.bytes(posted.pieces[0], abi::LOCAL_WRITE);
        place[..bytes.len()].copy_from_slice(bytes);
        let byte_len = u32::try_from(bytes.len()).expect("short");
        self.complete(Wc { id: posted.id, byte_len, ..Wc::default() });
        posted
    }

    /// The oldest operation that is no buffer.
    pub(crate) fn work(&mut self) -> Posted {
        let at = self.posted.iter().position(|one| one.opcode.is_some()).expect("an operation");
        self.posted.remove(at)
    }
}

/// Somebody wants to connect, at the listener that was made last.
pub(crate) fn knock(private_data: &'static [u8], reads: u8) {
    world(|world| {
        let listener = LISTENER.with_borrow(|all| *all.last().expect("a listener"));
        let raw = std::ptr::with_exposed_provenance_mut::<CmId>(listener);
        // SAFETY: identifiers of this library are never freed.
        let channel = unsafe { &*raw }.channel;
        let id = world.new_id(channel);
        let conn = ConnParam {
            private_data: private_data.as_ptr().cast(),
            private_data_len: u8::try_from(private_data.len()).expect("short"),
            responder_resources: 3,
            initiator_depth: reads,
            ..NO_PARAM
        };
        world.happen(id.expose_provenance(), abi::CONNECT_REQUEST, conn);
        CONNECTION.set(id.expose_provenance());
    });
}

/// Happens to the connection.
pub(crate) fn happen(event: i32) {
    world(|world| world.happen(CONNECTION.get(), event, NO_PARAM));
}

/// Happens to the listener.
pub(crate) fn happen_to_listener(event: i32) {
    let listener = LISTENER.with_borrow(|all| *all.last().expect("a listener"));
    world(|world| world.happen(listener, event, NO_PARAM));
}

thread_local! {
    static LISTENER: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static CONNECTION: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

const NO_PARAM: ConnParam = ConnParam {
    private_data: std::ptr::null(),
    private_data_len: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: 0,
    qp_number: 0,
};

/// The functions.
pub(crate) static API: Api = functions::API;

/// Names what this library has no memory of.
fn nothing<T>() -> *mut T {
    std::ptr::dangling_mut()
}

/// How peers name what we name so.
pub(crate) const fn remote_key(lkey: u32) -> u32 {
    lkey | 1 << 30
}

/// A region that was shown.
fn new_mr(lkey: u32) -> *mut Mr {
    let (context, pd) = (null_mut(), null_mut());
    let (address, length, handle, rkey) = (null_mut(), 0, 0, remote_key(lkey));
    Box::leak(Box::new(Mr { context, pd, address, length, handle, lkey, rkey }))
}

/// An address as a listener was given it.
fn address_of(raw: *mut SocketAddress) -> SocketAddress {
    // SAFETY: who calls gives a whole address.
    unsafe { *raw }
}
