// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that sorts frames at an interface (bpf(2)): ours go to our sockets, all others
//! their usual way. It is attached by a link, so it goes with the descriptor, whatever ends us.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr;

use super::Match;

/// A program at an interface, as long as it is there.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
    /// Whether the driver runs it, before the kernel has made anything of a frame.
    pub(super) by_driver: bool,
}

/// Sockets by the number of their queue (BPF_MAP_TYPE_XSKMAP).
#[derive(Debug)]
pub(super) struct Sockets(OwnedFd);

/// What is to be attached.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Sockets {
    pub(super) fn new(queues: u32) -> io::Result<Self> {
        let wish = MapCreate {
            map_type: BPF_MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: queues,
            map_flags: 0,
        };
        bpf_fd(BPF_MAP_CREATE, &wish).map(Self)
    }

    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = number(socket);
        let wish = MapUpdate {
            map: number_of(&self.0),
            padding: 0,
            key: address(&queue),
            value: address(&socket),
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &wish).map(drop)
    }
}

impl Program {
    /// Frames for which all of `matches` hold go to the socket of their queue, if there is one.
    /// `has_pieces`: also those that lie in several pieces.
    pub(super) fn load(matches: &[Match], sockets: &Sockets, has_pieces: bool) -> io::Result<Self> {
        let code = assemble(matches, number_of(&sockets.0));
        let mut name = [0; 16];
        name[..NAME.len()].copy_from_slice(NAME);
        let wish = ProgramLoad {
            kind: BPF_PROG_TYPE_XDP,
            count: u32::try_from(code.len()).unwrap_or(u32::MAX),
            code: address_of(code.as_ptr()),
            license: address_of(LICENSE.as_ptr()),
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel: 0,
            flags: if has_pieces { BPF_F_XDP_HAS_FRAGS } else { 0 },
            name,
        };
        bpf_fd(BPF_PROG_LOAD, &wish).map(Self)
    }

    /// Puts it there: into the driver where it takes it, else behind it.
    pub(super) fn attach(&self, interface: u32) -> io::Result<Attached> {
        let attach = |flags| {
            let wish = LinkCreate { program: number_of(&self.0), interface, kind: BPF_XDP, flags };
            bpf_fd(BPF_LINK_CREATE, &wish)
        };
        match attach(XDP_FLAGS_DRV_MODE) {
            Ok(link) => Ok(Attached { _link: link, by_driver: true }),
            // Somebody else's is there, or we may not: that is no better elsewhere.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) => {
                Err(error)
            }
            Err(_) => {
                let link = attach(XDP_FLAGS_SKB_MODE)?;
                Ok(Attached { _link: link, by_driver: false })
            }
        }
    }
}

/// One instruction (`struct bpf_insn`): code, registers, offset, immediate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Source in the upper half, destination in the lower one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The program: RFC 9669 has the instructions, linux/bpf.h the context and the helper.
fn assemble(matches: &[Match], sockets: i32) -> Vec<Instruction> {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_BYTE: u8 = 0x71;
    const MOVE: u8 = 0xbf;
    const SET: u8 = 0xb7;
    const ADD: u8 = 0x07;
    const AND: u8 = 0x57;
    const JUMP_ABOVE: u8 = 0x2d;
    const JUMP_UNLIKE: u8 = 0x55;
    const LOAD_MAP: u8 = 0x18;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    /// In `struct xdp_md`.
    const DATA: i16 = 0;
    const DATA_END: i16 = 4;
    const QUEUE: i16 = 16;
    let plain = |code, to: u8, from: u8, offset, immediate| Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    };
    let needed = matches.iter().map(|one| i32::from(one.at) + 1).max().unwrap_or(0);
    let mut code = vec![
        plain(LOAD_WORD, 2, 1, DATA, 0),
        plain(LOAD_WORD, 3, 1, DATA_END, 0),
        plain(MOVE, 4, 2, 0, 0),
        plain(ADD, 4, 0, 0, needed),
        plain(JUMP_ABOVE, 4, 3, ELSE, 0),
    ];
    for one in matches {
        code.push(plain(LOAD_BYTE, 5, 2, i16::from(one.at), 0));
        code.push(plain(AND, 5, 0, 0, i32::from(one.mask)));
        code.push(plain(JUMP_UNLIKE, 5, 0, ELSE, i32::from(one.value)));
    }
    code.extend([
        plain(LOAD_WORD, 2, 1, QUEUE, 0),
        plain(LOAD_MAP, 1, 1, 0, sockets),
        plain(0, 0, 0, 0, 0),
        // What it gives where the queue has no socket.
        plain(SET, 3, 0, 0, XDP_PASS),
        plain(CALL, 0, 0, 0, BPF_FUNC_REDIRECT_MAP),
        plain(EXIT, 0, 0, 0, 0),
    ]);
    let end = code.len();
    code.extend([plain(SET, 0, 0, 0, XDP_PASS), plain(EXIT, 0, 0, 0, 0)]);
    for (at, one) in code.iter_mut().enumerate() {
        if one.offset == ELSE {
            one.offset = i16::try_from(end - at - 1).unwrap_or(0);
        }
    }
    code
}

/// In the place of how far it is to the end.
const ELSE: i16 = i16::MIN;

/// What the kernel is asked (linux/bpf.h, `union bpf_attr`), as far as it is more than zeros.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: i32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct LinkCreate {
    program: i32,
    interface: u32,
    kind: u32,
    flags: u32,
}

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_PASS: i32 = 2;
const NAME: &[u8] = b"lunwire_ether";
const LICENSE: &[u8] = b"MIT\0";

fn bpf_fd<T>(command: i32, wish: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, wish)?;
    // SAFETY: the kernel has made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// JUSTIFICATION: neither the standard library nor rustix has bpf(2); a library for it brings a
/// loader of ELF files and a hundred structures for one program of forty instructions.
fn bpf<T>(command: i32, wish: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads as many bytes as are told, and what they point to, all of which
    // lives during the call; of the commands above none writes to it.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_ref(wish), size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(fd: BorrowedFd<'_>) -> i32 {
    fd.as_raw_fd()
}

fn number_of(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}

fn address<T>(of: &T) -> u64 {
    address_of(ptr::from_ref(of))
}

fn address_of<T>(of: *const T) -> u64 {
    // The kernel is told of memory in 64 bits.
    u64::try_from(of.expose_provenance()).unwrap_or(0)
}
