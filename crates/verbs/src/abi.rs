// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What libibverbs (IBVERBS_1.1) and librdmacm (RDMACM_1.0) have in memory, as far as it is used:
//! `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core, whose layouts stay as long as the files
//! have these names. Structures that only the libraries make are cut off behind what is read.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::offset_of;

/// What nobody looks into.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Opaque {
    nothing: [u8; 0],
}

pub(crate) type Pd = Opaque;
pub(crate) type Cq = Opaque;
pub(crate) type Qp = Opaque;

/// `ibv_device`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ops: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
}

/// `IBV_TRANSPORT_IWARP`.
pub(crate) const IWARP: c_int = 1;

pub(crate) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
pub(crate) type ReqNotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(crate) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
pub(crate) type PostRecv = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// `ibv_context_ops`: what the inline functions of the header call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ops {
    pub(crate) before: [usize; 11],
    pub(crate) poll_cq: Option<PollCq>,
    pub(crate) req_notify_cq: Option<ReqNotifyCq>,
    pub(crate) between: [usize; 12],
    pub(crate) post_send: Option<PostSend>,
    pub(crate) post_recv: Option<PostRecv>,
    pub(crate) behind: [usize; 5],
}

/// `ibv_context`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: Ops,
}

/// `ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceAttr {
    pub(crate) before: [u64; 14],
    pub(crate) max_qp_wr: c_int,
    pub(crate) capabilities: u32,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) between: [c_int; 2],
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) behind: [c_int; 18],
}

/// `IBV_DEVICE_MEM_MGT_EXTENSIONS`: among others, it sends with Invalidate.
pub(crate) const INVALIDATES: u32 = 1 << 21;

/// `ibv_mr`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) address: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `ibv_access_flags`.
pub(crate) const LOCAL_WRITE: c_int = 1;
pub(crate) const REMOTE_WRITE: c_int = 2;
pub(crate) const REMOTE_READ: c_int = 4;

/// `ibv_comp_channel`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CompChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
}

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct QpInitAttr {
    pub(crate) context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `IBV_QPT_RC`.
pub(crate) const RELIABLE: c_int = 2;

/// `ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sge {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `ibv_send_wr`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SendWr {
    pub(crate) id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sges: *mut Sge,
    pub(crate) sge_count: c_int,
    pub(crate) opcode: c_int,
    pub(crate) flags: u32,
    pub(crate) invalidate: u32,
    pub(crate) remote_address: u64,
    pub(crate) rkey: u32,
    pub(crate) behind: [u64; 9],
}

/// `ibv_wr_opcode`.
pub(crate) const WRITE: c_int = 0;
pub(crate) const SEND: c_int = 2;
pub(crate) const READ: c_int = 4;
pub(crate) const SEND_INVALIDATE: c_int = 9;

/// `ibv_send_flags`.
pub(crate) const SIGNALED: u32 = 1 << 1;
pub(crate) const SOLICITED: u32 = 1 << 2;
pub(crate) const INLINE: u32 = 1 << 3;

/// `ibv_recv_wr`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RecvWr {
    pub(crate) id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sges: *mut Sge,
    pub(crate) sge_count: c_int,
}

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wc {
    pub(crate) id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_error: u32,
    pub(crate) byte_len: u32,
    pub(crate) invalidated: u32,
    pub(crate) qp_number: u32,
    pub(crate) source: u32,
    pub(crate) flags: u32,
    pub(crate) behind: [u16; 4],
}

/// `IBV_WC_SUCCESS` and `IBV_WC_WR_FLUSH_ERR`.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const FLUSHED: c_int = 5;

/// `rdma_event_channel`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EventChannel {
    pub(crate) fd: c_int,
}

/// `rdma_cm_id`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CmId {
    pub(crate) verbs: *mut Context,
    pub(crate) channel: *mut EventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut Qp,
    pub(crate) local: SocketAddress,
    pub(crate) peer: SocketAddress,
}

/// `sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketAddress(pub(crate) [u8; 128]);

/// `rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnParam {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_number: u32,
}

/// `rdma_cm_event`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) listen_id: *mut CmId,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: ConnParam,
}

/// `rdma_cm_event_type`.
pub(crate) const ADDRESS_RESOLVED: c_int = 0;
pub(crate) const ADDRESS_ERROR: c_int = 1;
pub(crate) const ROUTE_RESOLVED: c_int = 2;
pub(crate) const ROUTE_ERROR: c_int = 3;
pub(crate) const CONNECT_REQUEST: c_int = 4;
pub(crate) const CONNECT_ERROR: c_int = 6;
pub(crate) const UNREACHABLE: c_int = 7;
pub(crate) const REJECTED: c_int = 8;
pub(crate) const ESTABLISHED: c_int = 9;
pub(crate) const DISCONNECTED: c_int = 10;
pub(crate) const DEVICE_REMOVAL: c_int = 11;

/// `RDMA_PS_TCP`.
pub(crate) const PORTS_OF_TCP: c_int = 0x0106;

/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_AFONLY`, an int: the address of all interfaces has those of
/// its own family alone.
pub(crate) const OWN_FAMILY_ALONE: (c_int, c_int) = (0, 2);

const _: () = {
    assert!(size_of::<Ops>() == 256 && offset_of!(Ops, poll_cq) == 88);
    assert!(offset_of!(Ops, post_send) == 200 && offset_of!(Ops, post_recv) == 208);
    assert!(offset_of!(Context, ops) == 8);
    assert!(offset_of!(Device, transport_type) == 20 && offset_of!(Device, name) == 24);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, max_qp_wr) == 112);
    assert!(offset_of!(DeviceAttr, max_cqe) == 132);
    assert!(offset_of!(DeviceAttr, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttr, max_qp_init_rd_atom) == 156);
    assert!(size_of::<Mr>() == 48 && offset_of!(Mr, lkey) == 36);
    assert!(offset_of!(CompChannel, fd) == 8);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, qp_type) == 52);
    assert!(size_of::<Sge>() == 16);
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, remote_address) == 40);
    assert!(offset_of!(SendWr, invalidate) == 36 && offset_of!(SendWr, rkey) == 48);
    assert!(size_of::<RecvWr>() == 32);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, flags) == 36);
    assert!(offset_of!(CmId, local) == 32 && offset_of!(CmId, peer) == 160);
    assert!(size_of::<ConnParam>() == 24 && offset_of!(ConnParam, qp_number) == 16);
    assert!(size_of::<CmEvent>() == 48 && offset_of!(CmEvent, conn) == 24);
};
