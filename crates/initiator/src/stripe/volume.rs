// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stripe is like, and what it says of itself.
//!
//! It answers INQUIRY, READ CAPACITY and MODE SENSE as a disk does that is as its members allow:
//! what one of them cannot do it cannot do. It has no name of its own. The page of device
//! identification (83h) has those of all members, by which a copy onto one of them is found.

use medium::stripe::Layout;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::capacity::Capacity;
use wire::scsi::capacity::Provisioning;
use wire::scsi::cdb::CdbView;
use wire::scsi::inquiry;
use wire::scsi::inquiry::PortGroups;
use wire::scsi::inquiry::Standard;
use wire::scsi::mode;
use wire::scsi::mode::Caching;
use wire::scsi::mode::DeviceSpecific;
use wire::scsi::sam;
use wire::scsi::vpd;
use wire::scsi::vpd::BlockLimits;
use wire::scsi::vpd::Designator;
use wire::scsi::vpd::LogicalBlockProvisioning;

use super::Part;
use super::StripeError;
use crate::Error;
use crate::Geometry;
use crate::Kind;
use crate::modes::Mode;
use crate::multipath::Name;
use crate::survey::Survey;

/// A stripe whose members are known.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) layout: Layout,
    pub(super) geometry: Geometry,
    /// Of each member.
    pub(super) parts: Vec<Geometry>,
    /// Whether a member has READ CAPACITY(10) alone.
    pub(super) shorts: Vec<bool>,
    /// What names the members.
    names: Vec<Designator>,
    /// Why the members are no stripe any more, as they told last.
    misfit: Option<StripeError>,
}

impl Volume {
    /// Of what the members say of themselves.
    pub(super) fn new(layout: Layout, members: &[(&Part, &Survey)]) -> Result<Self, Error> {
        let parts = members.iter().enumerate().map(|(at, (part, survey))| {
            survey.geometry().map_err(|error| error.at_lun(part.lun).of_member(at))
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        expect_different(members).map_err(StripeError::error)?;
        let geometry = geometry_of(layout, &parts).map_err(StripeError::error)?;
        let names = members.iter().flat_map(|(_, survey)| survey.names.iter().cloned());
        let names = names.filter(names_unit).collect();
        let shorts = members.iter().map(|(_, survey)| survey.is_short()).collect();
        Ok(Self { layout, geometry, parts, shorts, names, misfit: None })
    }

    /// Members have told their sizes anew.
    pub(super) fn learn_capacities(&mut self, capacities: &[Capacity]) -> Result<Capacity, Error> {
        let parts = self.parts.iter().zip(capacities).map(|(part, capacity)| Geometry {
            block: capacity.block_length,
            blocks: capacity.last_lba.saturating_add(1),
            ..*part
        });
        let parts: Vec<Geometry> = parts.collect();
        let geometry = geometry_of(self.layout, &parts);
        self.misfit = geometry.as_ref().err().cloned();
        self.geometry = geometry.map_err(StripeError::error)?;
        self.parts = parts;
        Ok(self.capacity())
    }

    /// Members have told their modes anew, or nothing; the answer to `cdb`.
    pub(super) fn learn_modes(
        &mut self,
        told: &[Option<Mode>],
        cdb: &CdbView<'_>,
    ) -> Result<Vec<u8>, Error> {
        for (part, mode) in self.parts.iter_mut().zip(told) {
            if let Some(Mode { volatile_cache, write_through, read_only }) = *mode {
                let read_only = read_only.unwrap_or_default();
                *part = Geometry { volatile_cache, write_through, read_only, ..*part };
            }
        }
        self.geometry = geometry_of(self.layout, &self.parts).map_err(StripeError::error)?;
        self.mode_sense(cdb)
    }

    /// As READ CAPACITY says it.
    fn capacity(&self) -> Capacity {
        let Geometry { block, blocks, unmap_max, same_max, unmap_zeros, .. } = self.geometry;
        Capacity {
            last_lba: blocks.saturating_sub(1),
            block_length: block,
            protection: None,
            physical_exponent: u8::try_from((self.geometry.physical / block.max(1)).max(1).ilog2())
                .unwrap_or(0),
            provisioning: match unmap_max > 0 || same_max > 0 {
                true if unmap_zeros => Provisioning::ManagedZeros,
                true => Provisioning::Managed,
                false => Provisioning::Full,
            },
            lowest_aligned_lba: 0,
        }
    }

    /// INQUIRY.
    pub(super) fn inquiry(&self, cdb: &CdbView<'_>) -> Result<Vec<u8>, Error> {
        if !cdb.bit(1, 0) {
            let standard = Standard {
                peripheral: inquiry::TYPE_DISK,
                version: inquiry::VERSION_SPC_4,
                vendor: *b"LUNWIRE ",
                product: *b"STRIPE          ",
                revision: *b"1   ",
                normal_aca: false,
                port_groups: PortGroups::None,
                third_party_copy: false,
                protect: false,
                version_descriptors: [0; inquiry::VERSION_DESCRIPTORS_MAX],
            };
            return Ok(standard.emit().to_vec());
        }
        let code = cdb.byte(2);
        let content = match code {
            vpd::SUPPORTED_PAGES => vec![
                vpd::SUPPORTED_PAGES,
                vpd::DEVICE_IDENTIFICATION,
                vpd::BLOCK_LIMITS,
                vpd::LOGICAL_BLOCK_PROVISIONING,
            ],
            vpd::DEVICE_IDENTIFICATION => {
                let mut content = Vec::new();
                self.names.iter().for_each(|name| name.emit(&mut content));
                content
            }
            vpd::BLOCK_LIMITS => self.limits().emit().to_vec(),
            vpd::LOGICAL_BLOCK_PROVISIONING => {
                let Geometry { unmap_max, same_max, unmap_zeros, .. } = self.geometry;
                let provisioning = LogicalBlockProvisioning {
                    unmap: unmap_max > 0,
                    same: same_max > 0,
                    zeros: unmap_zeros,
                    ..LogicalBlockProvisioning::default()
                };
                provisioning.emit().to_vec()
            }
            _ => return Err(illegal(INVALID_FIELD)),
        };
        Ok(vpd::page(inquiry::TYPE_DISK, code, &content))
    }

    fn limits(&self) -> BlockLimits {
        let geometry = &self.geometry;
        BlockLimits {
            write_same_non_zero: true,
            compare_and_write_max: geometry.compare_max,
            transfer_max: geometry.transfer_max,
            unmap_blocks_max: geometry.unmap_max,
            unmap_descriptors_max: u32::from(geometry.unmap_max > 0),
            unmap_granularity: geometry.unmap_granularity,
            unmap_alignment: Some(geometry.unmap_alignment),
            // Zero: no limit.
            write_same_max: match geometry.same_max {
                u32::MAX => 0,
                most => most.into(),
            },
            ..BlockLimits::default()
        }
    }

    /// MODE SENSE(6).
    pub(super) fn mode_sense(&self, cdb: &CdbView<'_>) -> Result<Vec<u8>, Error> {
        let caching = Caching { write_cache: self.geometry.volatile_cache }.emit();
        let pages = match cdb.byte(2) & 0x3f {
            mode::ALL_PAGES | mode::CACHING => &caching[..],
            _ => return Err(illegal(INVALID_FIELD)),
        };
        let specific = DeviceSpecific {
            write_protected: self.geometry.read_only,
            dpo_fua: self.geometry.write_through,
        };
        Ok(mode::emit(mode::Header::Six, specific, None, pages))
    }

    /// Fails if blocks are not where they were: a member has others now.
    pub(super) fn expect_fit(&self) -> Result<(), Error> {
        self.misfit.as_ref().map_or(Ok(()), |misfit| Err(misfit.clone().error()))
    }

    /// Fails if one of the members takes no writes.
    pub(super) fn expect_writable(&self) -> Result<(), Error> {
        match self.parts.iter().position(|part| part.read_only) {
            Some(at) => Err(StripeError::ReadOnly { member: at + 1 }.error()),
            None => Ok(()),
        }
    }
}

/// ASC of INVALID COMMAND OPERATION CODE (SPC-4 §F.2).
pub(super) const INVALID_COMMAND: u8 = 0x20;

/// ASC of LOGICAL BLOCK ADDRESS OUT OF RANGE.
pub(super) const OUT_OF_RANGE: u8 = 0x21;

/// ASC of INVALID FIELD IN CDB.
pub(super) const INVALID_FIELD: u8 = 0x24;

/// What a disk says of a command that it does not have, or not so.
pub(super) fn illegal(asc: u8) -> Error {
    let sense = Some(Sense::new(SenseKey::IllegalRequest, asc, 0));
    Error::new(Kind::Status { status: sam::CHECK_CONDITION, sense, raw: Vec::new() })
}

fn names_unit(name: &Designator) -> bool {
    match name {
        Designator::Naa(_) | Designator::Eui(_) | Designator::T10Vendor(_) => true,
        Designator::ScsiName { of, .. } => *of == vpd::Association::LogicalUnit,
        _ => false,
    }
}

/// Fails if two members are one disk, as far as they say.
fn expect_different(members: &[(&Part, &Survey)]) -> Result<(), StripeError> {
    for (second, (part, survey)) in members.iter().enumerate() {
        let name = Name::best_of(&survey.names);
        for (first, (other, theirs)) in members.iter().enumerate().take(second) {
            let is_one_place = part.target == other.target && part.lun == other.lun;
            let shared = name.as_ref().filter(|name| name.is_among(&theirs.names));
            // Names that makers give only within a target say nothing of two targets.
            let is_same = shared.is_some_and(|name| is_one_place || name.is_world_wide())
                || is_one_place && name.is_none();
            if is_same {
                let place =
                    || format!("LUN {} of {}", part.lun, part.target.as_deref().unwrap_or("?"));
                let name = shared.map_or_else(place, ToString::to_string);
                return Err(StripeError::Same { first: first + 1, second: second + 1, name });
            }
        }
    }
    Ok(())
}

/// What all of `parts` together can do.
fn geometry_of(layout: Layout, parts: &[Geometry]) -> Result<Geometry, StripeError> {
    let Some(first) = parts.first() else { return Err(StripeError::Members(0)) };
    let (chunk, block) = (layout.chunk(), first.block);
    for (member, part) in (1..).zip(parts) {
        if part.block != block {
            return Err(StripeError::Blocks { member, bytes: part.block, first: block });
        }
        if part.bytes() < chunk {
            return Err(StripeError::Small { member, bytes: part.bytes(), chunk });
        }
    }
    if !chunk.is_multiple_of(block.into()) {
        return Err(StripeError::Coarse { chunk, block });
    }
    let smallest = parts.iter().map(Geometry::bytes).min().unwrap_or(0);
    let bytes = layout.bytes(smallest).ok_or(StripeError::TooLarge)?;
    let chunk = u32::try_from(chunk / u64::from(block)).unwrap_or(u32::MAX);
    let least = |of: fn(&Geometry) -> u32| parts.iter().map(of).min().unwrap_or(0);
    let most = |of: fn(&Geometry) -> u32| parts.iter().map(of).max().unwrap_or(0);
    // What is given back in whole units must not be cut by the end of a chunk; a unit that begins
    // elsewhere than a chunk cannot be told of.
    let granularity = match most(|part| part.unmap_granularity) {
        _ if most(|part| part.unmap_alignment) > 0 => 0,
        granularity if granularity > 0 && chunk.is_multiple_of(granularity) => granularity,
        0 => 0,
        _ => chunk,
    };
    Ok(Geometry {
        block,
        blocks: bytes / u64::from(block),
        transfer_max: least(|part| part.transfer_max),
        unmap_max: least(|part| part.unmap_max),
        unmap_granularity: granularity,
        unmap_alignment: 0,
        same_max: least(|part| part.same_max),
        compare_max: parts
            .iter()
            .map(|part| part.compare_max)
            .min()
            .unwrap_or(0)
            .min(u8::try_from(chunk).unwrap_or(u8::MAX)),
        unmap_zeros: parts.iter().all(|part| part.unmap_zeros),
        physical: most(|part| part.physical),
        read_only: parts.iter().any(|part| part.read_only),
        volatile_cache: parts.iter().any(|part| part.volatile_cache),
        write_through: parts.iter().all(|part| part.write_through),
        protection: None,
    })
}
