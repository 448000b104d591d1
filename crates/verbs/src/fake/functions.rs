// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the libraries.

use super::CONNECTION;
use super::LISTENER;
use super::Posted;
use super::address_of;
use super::new_mr;
use super::nothing;
use super::world;
use crate::abi;
use crate::abi::CmEvent;
use crate::abi::CmId;
use crate::abi::CompChannel;
use crate::abi::ConnParam;
use crate::abi::Context;
use crate::abi::Cq;
use crate::abi::Device;
use crate::abi::DeviceAttr;
use crate::abi::EventChannel;
use crate::abi::INVALIDATES;
use crate::abi::Mr;
use crate::abi::Pd;
use crate::abi::Qp;
use crate::abi::QpInitAttr;
use crate::abi::RecvWr;
use crate::abi::SendWr;
use crate::abi::Sge;
use crate::abi::SocketAddress;
use crate::abi::Wc;
use crate::api::Api;
use std::ffi::c_int;
use std::ffi::c_uint;
use std::ffi::c_void;
use std::ptr::null_mut;

pub(super) const API: Api = Api {
    ibv_get_device_list,
    ibv_free_device_list,
    ibv_query_device,
    ibv_alloc_pd,
    ibv_dealloc_pd,
    ibv_reg_mr,
    ibv_dereg_mr,
    ibv_create_comp_channel,
    ibv_destroy_comp_channel,
    ibv_create_cq,
    ibv_destroy_cq,
    ibv_get_cq_event,
    ibv_ack_cq_events,
    rdma_create_event_channel,
    rdma_destroy_event_channel,
    rdma_create_id,
    rdma_destroy_id,
    rdma_migrate_id,
    rdma_set_option,
    rdma_bind_addr,
    rdma_listen,
    rdma_resolve_addr,
    rdma_resolve_route,
    rdma_connect,
    rdma_get_cm_event,
    rdma_ack_cm_event,
    rdma_create_qp,
    rdma_destroy_qp,
    rdma_accept,
    rdma_reject,
    rdma_disconnect,
};

/// Puts a value where the caller wants it.
fn put<T>(place: *mut T, value: T) {
    // SAFETY: who calls gives a place.
    unsafe { place.write(value) };
}

fn look<'a, T>(raw: *mut T) -> &'a mut T {
    // SAFETY: what this library gives out is never freed, and the caller's is whole.
    unsafe { &mut *raw }
}

/// 0, or -1 if it fails now.
fn status(name: &'static str) -> c_int {
    if world(|world| world.fails(name)) { -1 } else { 0 }
}

unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device {
    let device = world(|world| world.context().device);
    put(count, 1);
    Box::leak(Box::new([device, null_mut()])).as_mut_ptr()
}

unsafe extern "C" fn ibv_free_device_list(_: *mut *mut Device) {}

unsafe extern "C" fn ibv_query_device(_: *mut Context, attr: *mut DeviceAttr) -> c_int {
    let attr = look(attr);
    attr.max_qp_wr = world(|world| world.works_max);
    (attr.capabilities, attr.max_sge, attr.max_cqe) = (INVALIDATES, 4, 4096);
    (attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (16, 8);
    if world(|world| world.fails("query")) { 5 } else { 0 }
}

unsafe extern "C" fn ibv_alloc_pd(_: *mut Context) -> *mut Pd {
    if status("pd") != 0 {
        return null_mut();
    }
    world(|world| world.count("pd", 1));
    nothing()
}

unsafe extern "C" fn ibv_dealloc_pd(_: *mut Pd) -> c_int {
    world(|world| {
        assert!(world.shown.is_empty(), "memory first");
        world.count("pd", -1);
    });
    0
}

unsafe extern "C" fn ibv_reg_mr(_: *mut Pd, at: *mut c_void, len: usize, access: c_int) -> *mut Mr {
    if status("mr") != 0 {
        return null_mut();
    }
    let key = world(|world| {
        world.shown_ever += 1;
        world.shown.insert(world.shown_ever, (at.addr(), len, access));
        world.shown_ever
    });
    new_mr(key)
}

unsafe extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    if status("dereg") != 0 {
        return 16;
    }
    let key = look(mr).lkey;
    world(|world| {
        world.shown.remove(&key).expect("it was shown");
        let uses = |one: &Posted| one.pieces.iter().any(|piece| piece.2 == key);
        let in_use = world.posted.iter().any(uses);
        let is_up = world.live.get("qp").is_some_and(|count| *count > 0);
        assert!(!(in_use && is_up), "nothing of it is under way");
    });
    0
}

unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel {
    if status("comp") != 0 {
        return null_mut();
    }
    let fd = world(|world| world.open_channel("comp"));
    Box::leak(Box::new(CompChannel { context, fd }))
}

unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    let fd = look(channel).fd;
    world(|world| {
        world.channels.remove(&fd);
        world.count("comp", -1);
    });
    0
}

unsafe extern "C" fn ibv_create_cq(
    _: *mut Context,
    _: c_int,
    _: *mut c_void,
    channel: *mut CompChannel,
    _: c_int,
) -> *mut Cq {
    if status("cq") != 0 {
        return null_mut();
    }
    let fd = look(channel).fd;
    world(|world| {
        world.told = Some((fd, false));
        world.count("cq", 1);
    });
    nothing()
}

unsafe extern "C" fn ibv_destroy_cq(_: *mut Cq) -> c_int {
    world(|world| {
        assert_eq!(world.live.get("qp").copied().unwrap_or_default(), 0, "the pair first");
        assert_eq!(world.live.get("cq event").copied().unwrap_or_default(), 0, "heard");
        world.told = None;
        world.count("cq", -1);
    });
    0
}

unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut Cq,
    _: *mut *mut c_void,
) -> c_int {
    let fd = look(channel).fd;
    if world(|world| world.take(fd)).is_none() {
        return -1;
    }
    world(|world| world.count("cq event", 1));
    put(cq, nothing());
    0
}

unsafe extern "C" fn ibv_ack_cq_events(_: *mut Cq, count: c_uint) {
    let count = i32::try_from(count).expect("few");
    world(|world| world.count("cq event", -count));
}

pub(super) unsafe extern "C" fn poll_cq(_: *mut Cq, most: c_int, all: *mut Wc) -> c_int {
    if status("poll") != 0 {
        return -1;
    }
    let mut count = 0;
    while count < most
        && let Some(completion) = world(|world| world.completions.pop_front())
    {
        put(all.wrapping_add(usize::try_from(count).expect("few")), completion);
        count += 1;
    }
    count
}

pub(super) unsafe extern "C" fn req_notify_cq(_: *mut Cq, _: c_int) -> c_int {
    world(|world| {
        if let Some((_, asked)) = &mut world.told {
            *asked = true;
        }
    });
    0
}

fn pieces(sges: *mut Sge, count: c_int) -> Vec<(u64, u32, u32)> {
    let count = usize::try_from(count).expect("no piece is missing");
    let piece = |at| {
        let Sge { address, length, lkey } = *look(sges.wrapping_add(at));
        (address, length, lkey)
    };
    (0..count).map(piece).collect()
}

pub(super) unsafe extern "C" fn post_send(
    _: *mut Qp,
    order: *mut SendWr,
    _: *mut *mut SendWr,
) -> c_int {
    let order = look(order);
    if status("post_send") != 0 {
        return 12;
    }
    let pieces = pieces(order.sges, order.sge_count);
    world(|world| {
        // What goes by value is read now, and what does not is known.
        pieces.iter().for_each(|piece| drop(world.bytes(*piece, 0).to_vec()));
        world.posted.push(Posted {
            id: order.id,
            opcode: Some(order.opcode),
            flags: order.flags,
            invalidate: order.invalidate,
            remote: (order.remote_address, order.rkey),
            pieces,
        });
    });
    0
}

pub(super) unsafe extern "C" fn post_recv(
    _: *mut Qp,
    order: *mut RecvWr,
    _: *mut *mut RecvWr,
) -> c_int {
    let order = look(order);
    if status("post_recv") != 0 {
        return 12;
    }
    let (id, pieces) = (order.id, pieces(order.sges, order.sge_count));
    let (opcode, flags, invalidate, remote) = (None, 0, 0, (0, 0));
    world(|world| world.posted.push(Posted { id, opcode, flags, invalidate, remote, pieces }));
    0
}

unsafe extern "C" fn rdma_create_event_channel() -> *mut EventChannel {
    if status("channel") != 0 {
        return null_mut();
    }
    let fd = world(|world| world.open_channel("channel"));
    Box::leak(Box::new(EventChannel { fd }))
}

unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut EventChannel) {
    let fd = look(channel).fd;
    world(|world| {
        world.channels.remove(&fd);
        world.count("channel", -1);
    });
}

unsafe extern "C" fn rdma_create_id(
    channel: *mut EventChannel,
    place: *mut *mut CmId,
    _: *mut c_void,
    _: c_int,
) -> c_int {
    if status("id") != 0 {
        return -1;
    }
    let id = world(|world| world.new_id(channel));
    LISTENER.with_borrow_mut(|all| all.push(id.expose_provenance()));
    put(place, id);
    0
}

unsafe extern "C" fn rdma_destroy_id(id: *mut CmId) -> c_int {
    assert!(look(id).qp.is_null(), "the pair first");
    world(|world| {
        assert_eq!(world.live.get("event").copied().unwrap_or_default(), 0, "heard");
        world.count("id", -1);
        if world.live["id"] == 0 && world.is_device_dead {
            let made = ["pd", "cq", "comp_channel"].map(|what| world.live.get(what).copied());
            assert!(made.iter().flatten().all(|count| *count == 0), "the device is closed");
        }
    });
    0
}

unsafe extern "C" fn rdma_migrate_id(id: *mut CmId, channel: *mut EventChannel) -> c_int {
    if status("migrate") != 0 {
        return -1;
    }
    look(id).channel = channel;
    0
}

unsafe extern "C" fn rdma_set_option(
    _: *mut CmId,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    assert_eq!(length, size_of::<c_int>(), "what the kernel insists on");
    // SAFETY: it is as long as was said.
    let value = unsafe { value.cast::<c_int>().read() };
    world(|world| {
        world.keeps_to_family = (level, option) == abi::OWN_FAMILY_ALONE && value == 1;
    });
    status("option")
}

unsafe extern "C" fn rdma_bind_addr(id: *mut CmId, address: *mut SocketAddress) -> c_int {
    look(id).local = address_of(address);
    status("bind")
}

unsafe extern "C" fn rdma_listen(_: *mut CmId, _: c_int) -> c_int {
    status("listen")
}

unsafe extern "C" fn rdma_resolve_addr(
    id: *mut CmId,
    _: *mut SocketAddress,
    to: *mut SocketAddress,
    _: c_int,
) -> c_int {
    look(id).peer = address_of(to);
    world(|world| world.step(id.expose_provenance(), "resolve", abi::ADDRESS_RESOLVED));
    status("resolve")
}

unsafe extern "C" fn rdma_resolve_route(id: *mut CmId, _: c_int) -> c_int {
    world(|world| world.step(id.expose_provenance(), "route", abi::ROUTE_RESOLVED));
    status("route")
}

unsafe extern "C" fn rdma_connect(id: *mut CmId, param: *mut ConnParam) -> c_int {
    assert!(!look(id).qp.is_null(), "there is a pair");
    CONNECTION.set(id.expose_provenance());
    let said = said(param);
    world(|world| {
        world.asked = Some(said);
        world.step(id.expose_provenance(), "connect", abi::ESTABLISHED);
    });
    status("connect")
}

/// The bytes, and the Reads that are served and wanted.
fn said(param: *mut ConnParam) -> (Vec<u8>, u8, u8) {
    let param = look(param);
    let said = (0..usize::from(param.private_data_len)).map(|at| {
        let byte = param.private_data.cast::<u8>().wrapping_add(at).cast_mut();
        *look(byte)
    });
    (said.collect(), param.responder_resources, param.initiator_depth)
}

unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut EventChannel,
    place: *mut *mut CmEvent,
) -> c_int {
    let fd = look(channel).fd;
    let Some(event) = world(|world| world.take(fd)) else { return -1 };
    world(|world| world.count("event", 1));
    put(place, std::ptr::with_exposed_provenance_mut(event));
    0
}

unsafe extern "C" fn rdma_ack_cm_event(_: *mut CmEvent) -> c_int {
    world(|world| world.count("event", -1));
    0
}

unsafe extern "C" fn rdma_create_qp(id: *mut CmId, _: *mut Pd, attr: *mut QpInitAttr) -> c_int {
    let attr = look(attr);
    if status("qp") != 0 || attr.cap.max_inline_data > world(|world| world.inline_max) {
        return -1;
    }
    world(|world| world.count("qp", 1));
    look(id).qp = nothing();
    0
}

unsafe extern "C" fn rdma_destroy_qp(id: *mut CmId) {
    world(|world| world.count("qp", -1));
    look(id).qp = null_mut();
}

unsafe extern "C" fn rdma_accept(id: *mut CmId, param: *mut ConnParam) -> c_int {
    if status("accept") != 0 {
        return -1;
    }
    CONNECTION.set(id.expose_provenance());
    let said = said(param);
    world(|world| world.accepted = Some(said));
    0
}

unsafe extern "C" fn rdma_reject(_: *mut CmId, _: *const c_void, _: u8) -> c_int {
    world(|world| world.rejected = true);
    0
}

unsafe extern "C" fn rdma_disconnect(_: *mut CmId) -> c_int {
    world(|world| world.disconnected = true);
    0
}
