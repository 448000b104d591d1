// SPDX-License-Identifier: Apache-2.0 OR MIT
//! INQUIRY (SPC-4 §6.6): standard data and vital product data.

use crate::copy;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wire::scsi::cdb::CdbView;
use wire::scsi::inquiry;
use wire::scsi::inquiry::PortGroups;
use wire::scsi::inquiry::Standard;
use wire::scsi::inquiry::ascii;
use wire::scsi::vpd;
use wire::scsi::vpd::Association;
use wire::scsi::vpd::BlockDeviceCharacteristics;
use wire::scsi::vpd::BlockLimits;
use wire::scsi::vpd::Designator;
use wire::scsi::vpd::ExtendedInquiry;
use wire::scsi::vpd::LogicalBlockProvisioning;

/// VPD pages of a disk, ascending, as page 00 lists them.
const PAGES: [u8; 9] = [
    vpd::SUPPORTED_PAGES,
    vpd::UNIT_SERIAL_NUMBER,
    vpd::DEVICE_IDENTIFICATION,
    vpd::EXTENDED_INQUIRY,
    vpd::THIRD_PARTY_COPY,
    vpd::BLOCK_LIMITS,
    vpd::BLOCK_DEVICE_CHARACTERISTICS,
    vpd::LOGICAL_BLOCK_PROVISIONING,
    vpd::GATEWAYS,
];

/// VPD pages of a CD or DVD drive.
const OPTICAL_PAGES: [u8; 3] =
    [vpd::SUPPORTED_PAGES, vpd::UNIT_SERIAL_NUMBER, vpd::DEVICE_IDENTIFICATION];

/// What the CDB asks for.
enum Asked {
    Standard,
    Page(u8),
}

/// INQUIRY of a unit.
pub(crate) fn inquiry(context: &Context<'_>) -> Result<Started, Fault> {
    let unit = context.unit;
    let bytes = match asked(&context.cdb)? {
        Asked::Standard => standard(unit).emit().to_vec(),
        Asked::Page(code) => page(context.nexus, unit, code)?,
    };
    Ok(data(bytes, allocation(&context.cdb)))
}

/// INQUIRY where there is no unit of a volume: byte 0 says what there is.
pub(crate) fn elsewhere(cdb: &CdbView<'_>, peripheral: u8) -> Result<Started, Fault> {
    let bytes = match asked(cdb)? {
        Asked::Standard => Standard {
            peripheral,
            version: inquiry::VERSION_SPC_4,
            vendor: ascii(""),
            product: ascii(""),
            revision: ascii(""),
            normal_aca: false,
            port_groups: PortGroups::None,
            third_party_copy: false,
            protect: false,
            version_descriptors: [0; inquiry::VERSION_DESCRIPTORS_MAX],
        }
        .emit()
        .to_vec(),
        Asked::Page(vpd::SUPPORTED_PAGES) => {
            vpd::page(peripheral, vpd::SUPPORTED_PAGES, &[vpd::SUPPORTED_PAGES])
        }
        Asked::Page(_) => return Err(sense::invalid_field(2).into()),
    };
    Ok(data(bytes, allocation(cdb)))
}

fn asked(cdb: &CdbView<'_>) -> Result<Asked, Fault> {
    match (cdb.bit(1, 0), cdb.byte(2)) {
        (false, 0) => Ok(Asked::Standard),
        (false, _) => Err(sense::invalid_field(2).into()),
        (true, code) => Ok(Asked::Page(code)),
    }
}

fn allocation(cdb: &CdbView<'_>) -> u32 {
    u32::from(cdb.u16_at(3))
}

fn standard(unit: &LogicalUnit) -> Standard {
    let identity = unit.identity();
    Standard {
        peripheral: peripheral(unit),
        version: inquiry::VERSION_SPC_4,
        vendor: ascii(&identity.vendor),
        product: ascii(&identity.product),
        revision: ascii(&identity.revision),
        normal_aca: true,
        // A drive cannot be asked for its groups: the operation code means something else there.
        port_groups: match unit.is_optical() {
            true => PortGroups::None,
            false => unit.access().who_changes(),
        },
        third_party_copy: unit.takes_part_in_copies(),
        protect: unit.protection().is_some(),
        version_descriptors: [
            inquiry::SAM_5,
            inquiry::SPC_4,
            if unit.is_optical() { inquiry::MMC_6 } else { inquiry::SBC_3 },
            inquiry::ISCSI,
            0,
            0,
            0,
            0,
        ],
    }
}

/// Copies pass by what a protected unit keeps beside its blocks: it takes no part in them.
fn is_page(unit: &LogicalUnit, code: u8) -> bool {
    match code {
        vpd::THIRD_PARTY_COPY => unit.takes_part_in_copies(),
        vpd::GATEWAYS => !unit.store().gateways().is_empty(),
        _ => true,
    }
}

fn peripheral(unit: &LogicalUnit) -> u8 {
    if unit.is_optical() { inquiry::TYPE_OPTICAL } else { inquiry::TYPE_DISK }
}

fn page(nexus: &Nexus, unit: &LogicalUnit, code: u8) -> Result<Vec<u8>, Fault> {
    let page = |content: &[u8]| vpd::page(peripheral(unit), code, content);
    let pages: &[u8] = if unit.is_optical() { &OPTICAL_PAGES } else { &PAGES };
    let pages: Vec<u8> = pages.iter().copied().filter(|page| is_page(unit, *page)).collect();
    Ok(match code {
        code if !pages.contains(&code) => return Err(sense::invalid_field(2).into()),
        vpd::SUPPORTED_PAGES => page(&pages),
        vpd::UNIT_SERIAL_NUMBER => page(unit.identity().serial.as_bytes()),
        vpd::DEVICE_IDENTIFICATION => page(&designators(nexus, unit)),
        vpd::EXTENDED_INQUIRY => page(
            &ExtendedInquiry {
                protection: unit.protection().is_some(),
                volatile_cache: unit.geometry().volatile_cache,
                sense_len_max: limits::SENSE_LEN_MAX,
            }
            .emit(),
        ),
        vpd::THIRD_PARTY_COPY => page(&copy::page::content(unit)),
        vpd::BLOCK_LIMITS => page(&block_limits(unit).emit()),
        vpd::BLOCK_DEVICE_CHARACTERISTICS => {
            let rotation_rate = u16::from(!unit.geometry().rotational);
            let read_after_block_erase = unit.can_discard();
            page(&BlockDeviceCharacteristics { rotation_rate, read_after_block_erase }.emit())
        }
        vpd::LOGICAL_BLOCK_PROVISIONING => page(&provisioning(unit).emit()),
        vpd::GATEWAYS => page(&vpd::emit_gateways(&unit.store().gateways())),
        _ => return Err(sense::invalid_field(2).into()),
    })
}

/// Page 83 (SPC-4 §7.8.5, RFC 7143 §4.4.2): the unit by T10 vendor ID and NAA, the port by number
/// and name, the device by its iSCSI name. Last what no host takes for a name.
pub(crate) fn designators(nexus: &Nexus, unit: &LogicalUnit) -> Vec<u8> {
    let identity = unit.identity();
    let mut vendor = ascii::<8>(&identity.vendor).to_vec();
    vendor.extend_from_slice(&ascii::<16>(&identity.product));
    vendor.extend_from_slice(identity.serial.as_bytes());
    let mut bytes = Vec::new();
    Designator::Naa(identity.naa.clone()).emit(&mut bytes);
    Designator::T10Vendor(vendor).emit(&mut bytes);
    designators_of_ports(nexus, unit, &mut bytes);
    if let Some(content) = identity.content {
        Designator::Content(content).emit(&mut bytes);
    }
    bytes
}

/// Appends what names the target port of a nexus, and the target.
pub(crate) fn designators_of_ports(nexus: &Nexus, unit: &LogicalUnit, bytes: &mut Vec<u8>) {
    let names = nexus.names();
    let port = target_port_name(&names.target_device, names.portal_group_tag);
    for designator in [
        Designator::RelativeTargetPort(names.relative_port),
        Designator::TargetPortGroup(unit.access().group_of(names)),
        Designator::ScsiName { of: Association::TargetPort, name: port.into_bytes() },
        Designator::ScsiName {
            of: Association::TargetDevice,
            name: names.target_device.clone().into_bytes(),
        },
    ] {
        designator.emit(bytes);
    }
}

/// The SCSI port name of a target portal group (RFC 7143 §4.4.2).
fn target_port_name(device: &str, portal_group_tag: u16) -> String {
    format!("{device},t,0x{portal_group_tag:04x}")
}

/// What hosts' caches and most stores are made of, bytes.
const PAGE_LEN: u32 = 4096;

fn block_limits(unit: &LogicalUnit) -> BlockLimits {
    let geometry = unit.geometry();
    // What hosts do well to write at once is a page, even where less costs the same.
    let transfer_granularity = unit.blocks_in(geometry.physical_block.max(PAGE_LEN)).max(1);
    let transfer_optimal = unit.store().optimal_io().unwrap_or(limits::TRANSFER_OPTIMAL);
    let transfer_optimal = transfer_optimal.clamp(PAGE_LEN, limits::TRANSFER_MAX);
    let mut limits = BlockLimits {
        write_same_non_zero: true,
        transfer_granularity: u16::try_from(transfer_granularity).unwrap_or(0),
        transfer_max: unit.blocks_in(limits::TRANSFER_MAX),
        compare_and_write_max: unit.compare_max(),
        prefetch_max: unit.blocks_in(limits::PREFETCH_MAX),
        transfer_optimal: unit.blocks_in(transfer_optimal),
        write_same_max: u64::from(unit.blocks_in(limits::WRITE_SAME_MAX)),
        atomic_max: unit.atomic_max().map_or(0, |bytes| unit.blocks_in(bytes)),
        ..BlockLimits::default()
    };
    if let Some(granularity) = geometry.discard_granularity {
        limits.unmap_blocks_max = limits::UNMAP_BLOCKS_MAX;
        limits.unmap_descriptors_max = limits::UNMAP_DESCRIPTORS_MAX;
        // Zero: not reported (SBC-3 §6.5.3). QEMU keeps a map of what is allocated where it is told
        // of a granularity of 4 KiB to 16 MiB and zeroes are read from the rest, and then asks its
        // own code for the status of 2^31 - 512 bytes, which is no multiple of a longer block: it
        // aborts. Hosts take the physical block for the granularity instead.
        if unit.block() == 512 {
            limits.unmap_granularity = unit.blocks_in(granularity).max(1);
            limits.unmap_alignment = Some(0);
        }
    }
    limits
}

fn provisioning(unit: &LogicalUnit) -> LogicalBlockProvisioning {
    if unit.can_discard() {
        LogicalBlockProvisioning {
            unmap: true,
            same: true,
            zeros: true,
            anchors: unit.can_anchor(),
            provisioning_type: 2,
            threshold_exponent: unit.threshold_exponent(),
        }
    } else {
        LogicalBlockProvisioning::default()
    }
}
