// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the driver and its servers tell each other (`<linux/ublk_cmd.h>`).

/// Whoever serves a device may be gone, and another one take its place.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// That one is given what was under way.
pub(super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands have the numbers of ioctls.
pub(super) const IOCTL_ENCODE: u64 = 1 << 6;
/// Data is fetched and brought by `pread` and `pwrite`.
pub(super) const USER_COPY: u64 = 1 << 7;
/// `UPDATE_SIZE` is known.
pub(super) const UPDATE_SIZE_FEATURE: u64 = 1 << 10;

const READS: u32 = 2;
const BOTH: u32 = 3;

pub(super) const GET_DEV_INFO: u32 = code(READS, 0x02, CONTROL_BYTES);
pub(super) const ADD_DEV: u32 = code(BOTH, 0x04, CONTROL_BYTES);
pub(super) const DEL_DEV: u32 = code(BOTH, 0x05, CONTROL_BYTES);
pub(super) const START_DEV: u32 = code(BOTH, 0x06, CONTROL_BYTES);
pub(super) const STOP_DEV: u32 = code(BOTH, 0x07, CONTROL_BYTES);
pub(super) const SET_PARAMS: u32 = code(BOTH, 0x08, CONTROL_BYTES);
pub(super) const GET_PARAMS: u32 = code(READS, 0x09, CONTROL_BYTES);
pub(super) const START_USER_RECOVERY: u32 = code(BOTH, 0x10, CONTROL_BYTES);
pub(super) const END_USER_RECOVERY: u32 = code(BOTH, 0x11, CONTROL_BYTES);
pub(super) const GET_FEATURES: u32 = code(READS, 0x13, CONTROL_BYTES);
pub(super) const DEL_DEV_ASYNC: u32 = code(READS, 0x14, CONTROL_BYTES);
pub(super) const UPDATE_SIZE: u32 = code(BOTH, 0x15, CONTROL_BYTES);

pub(super) const FETCH: u32 = code(BOTH, 0x20, IO_BYTES);
pub(super) const COMMIT_AND_FETCH: u32 = code(BOTH, 0x21, IO_BYTES);

const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;

/// `_IOC(direction, 'u', number, bytes)`.
const fn code(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// `struct ublksrv_ctrl_cmd`.
pub(super) fn control(number: u32, address: u64, length: u16, value: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    put(&mut bytes, 0, &number.to_ne_bytes());
    // Of the whole device, and no queue.
    put(&mut bytes, 4, &u16::MAX.to_ne_bytes());
    put(&mut bytes, 6, &length.to_ne_bytes());
    put(&mut bytes, 8, &address.to_ne_bytes());
    put(&mut bytes, 16, &value.to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_cmd` of the first queue.
pub(super) fn io(tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 2, &tag.to_ne_bytes());
    put(&mut bytes, 4, &result.to_ne_bytes());
    bytes
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) io_bytes_max: u32,
    pub(super) number: u32,
    pub(super) pid: i32,
    pub(super) flags: u64,
    pub(super) mark: u64,
}

impl Info {
    pub(super) const BYTES: usize = 64;

    pub(super) fn emit(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 4, &self.state.to_ne_bytes());
        put(&mut bytes, 8, &self.io_bytes_max.to_ne_bytes());
        put(&mut bytes, 12, &self.number.to_ne_bytes());
        put(&mut bytes, 16, &self.pid.to_ne_bytes());
        put(&mut bytes, 24, &self.flags.to_ne_bytes());
        put(&mut bytes, 32, &self.mark.to_ne_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(take(bytes, 0)),
            depth: u16::from_ne_bytes(take(bytes, 2)),
            state: u16::from_ne_bytes(take(bytes, 4)),
            io_bytes_max: u32::from_ne_bytes(take(bytes, 8)),
            number: u32::from_ne_bytes(take(bytes, 12)),
            pid: i32::from_ne_bytes(take(bytes, 16)),
            flags: u64::from_ne_bytes(take(bytes, 24)),
            mark: u64::from_ne_bytes(take(bytes, 32)),
        }
    }
}

/// `struct ublk_params` up to `discard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_sectors_max: u32,
    pub(super) sectors: u64,
    pub(super) discard: Option<DiscardParams>,
}

/// `struct ublk_param_discard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DiscardParams {
    pub(super) alignment: u32,
    pub(super) granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zero_sectors_max: u32,
}

impl Params {
    pub(super) const BYTES: usize = 60;
    const LENGTH: u32 = 60;

    pub(super) const READ_ONLY: u32 = 1;
    pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(super) const FUA: u32 = 1 << 3;

    const BASIC: u32 = 1;
    const DISCARD: u32 = 1 << 1;

    pub(super) fn emit(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let types = Self::BASIC | self.discard.map_or(0, |_| Self::DISCARD);
        put(&mut bytes, 0, &Self::LENGTH.to_ne_bytes());
        put(&mut bytes, 4, &types.to_ne_bytes());
        put(&mut bytes, 8, &self.attributes.to_ne_bytes());
        // Best and least transfers are physical blocks.
        let shifts = [self.logical_shift, self.physical_shift, self.physical_shift];
        put(&mut bytes, 12, &shifts);
        put(&mut bytes, 15, &[self.physical_shift]);
        put(&mut bytes, 16, &self.io_sectors_max.to_ne_bytes());
        put(&mut bytes, 24, &self.sectors.to_ne_bytes());
        if let Some(discard) = self.discard {
            put(&mut bytes, 40, &discard.alignment.to_ne_bytes());
            put(&mut bytes, 44, &discard.granularity.to_ne_bytes());
            put(&mut bytes, 48, &discard.discard_sectors_max.to_ne_bytes());
            put(&mut bytes, 52, &discard.zero_sectors_max.to_ne_bytes());
            // Ranges of one request.
            put(&mut bytes, 56, &1_u16.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let types = u32::from_ne_bytes(take(bytes, 4));
        let discard = DiscardParams {
            alignment: u32::from_ne_bytes(take(bytes, 40)),
            granularity: u32::from_ne_bytes(take(bytes, 44)),
            discard_sectors_max: u32::from_ne_bytes(take(bytes, 48)),
            zero_sectors_max: u32::from_ne_bytes(take(bytes, 52)),
        };
        let [logical_shift, physical_shift] = take(bytes, 12);
        Self {
            attributes: u32::from_ne_bytes(take(bytes, 8)),
            logical_shift,
            physical_shift,
            io_sectors_max: u32::from_ne_bytes(take(bytes, 16)),
            sectors: u64::from_ne_bytes(take(bytes, 24)),
            discard: (types & Self::DISCARD != 0).then_some(discard),
        }
    }

    /// What the driver reads first, to know how much it may write.
    pub(super) fn asking() -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &Self::LENGTH.to_ne_bytes());
        bytes
    }
}

/// `struct ublksrv_io_desc`, which lies in memory that the driver shares with us.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) operation_and_flags: u32,
    pub(super) sectors: u32,
    pub(super) first: u64,
    pub(super) address: u64,
}

const _: () = assert!(size_of::<Descriptor>() == 24);

/// What a request is for, in the lowest byte.
pub(super) mod operation {
    pub(in super::super) const READ: u32 = 0;
    pub(in super::super) const WRITE: u32 = 1;
    pub(in super::super) const FLUSH: u32 = 2;
    pub(in super::super) const DISCARD: u32 = 3;
    pub(in super::super) const WRITE_ZEROES: u32 = 5;
}

/// On stable storage before it ends.
pub(super) const FUA: u32 = 1 << 13;
/// Zeroes keep their space.
pub(super) const KEEP_SPACE: u32 = 1 << 15;

/// Where the data of a request begins in the character device.
pub(super) const fn data_of(tag: u16) -> u64 {
    const BEGIN: u64 = 0x8000_0000;
    const TAG_SHIFT: u32 = 25;
    BEGIN + ((tag as u64) << TAG_SHIFT)
}

fn put<const N: usize>(to: &mut [u8; N], at: usize, from: &[u8]) {
    if let Some(room) = to.get_mut(at..at + from.len()) {
        room.copy_from_slice(from);
    }
}

fn take<const N: usize, const M: usize>(from: &[u8; N], at: usize) -> [u8; M] {
    let mut bytes = [0; M];
    bytes.copy_from_slice(from.get(at..at + M).unwrap_or(&[0; M]));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a C compiler makes them of the header.
    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(UPDATE_SIZE, 0xc020_7515);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(data_of(3), 0x8600_0000);
    }

    #[test]
    fn what_is_emitted_is_parsed() {
        let info = Info {
            queues: 1,
            depth: 128,
            state: 2,
            io_bytes_max: 1 << 20,
            number: 7,
            pid: -1,
            flags: USER_COPY,
            mark: 0x0102_0304_0506_0708,
        };
        assert_eq!(Info::parse(&info.emit()), info);
        let plain = Params {
            attributes: Params::FUA,
            logical_shift: 9,
            physical_shift: 12,
            io_sectors_max: 2048,
            sectors: 1 << 40,
            discard: None,
        };
        assert_eq!(Params::parse(&plain.emit()), plain);
        let discard = DiscardParams {
            alignment: 512,
            granularity: 4096,
            discard_sectors_max: 9,
            zero_sectors_max: 8,
        };
        let thin = Params { discard: Some(discard), ..plain };
        assert_eq!(Params::parse(&thin.emit()), thin);
        assert_eq!(thin.emit()[4..8], 3_u32.to_ne_bytes());
        assert_eq!(thin.emit()[12..16], [9, 12, 12, 12]);
    }

    #[test]
    fn commands_have_their_fields_where_the_driver_looks() {
        let bytes = control(5, 0x1122_3344_5566_7788, 64, 9);
        assert_eq!(bytes[..8], [5, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(bytes[16], 9);
        assert_eq!(io(3, -5), [0, 0, 3, 0, 0xfb, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
