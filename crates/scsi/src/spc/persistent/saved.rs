// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registrations and the reservation as bytes that outlive a loss of power (APTPL, SPC-4 §5.12.5).
//!
//! ```text
//! type:4 holder:4 count:4 { key:8 target:2 all:1 reserved:1 length:4 name }*
//! ```
//!
//! All numbers are big-endian. `type` is zero if there is no reservation; `holder` is the index of
//! a registrant.

use super::registry::Port;
use super::registry::Registrant;
use super::registry::Registry;
use super::registry::Reservation;
use crate::kept;
use crate::kept::Kept;
use crate::kept::Reader;
use crate::kept::RestoreError;
use crate::limits;
use alloc::vec::Vec;
use wire::scsi::persistent::Type;

/// Writes the state for the unit `unit`; nothing of it if it is not to persist.
pub(super) fn emit(registry: &Registry, unit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let registrants = if registry.persists { &registry.registrants[..] } else { &[] };
    let holder = registry
        .reservation
        .as_ref()
        .and_then(|held| registrants.iter().position(|registrant| registrant.port == held.holder));
    let kind = registry.reservation.as_ref().filter(|held| {
        !registrants.is_empty() && (holder.is_some() || held.kind.is_of_all_registrants())
    });
    let holder = holder.and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
    let count = u32::try_from(registrants.len()).unwrap_or(0);
    for number in [kind.map_or(0, |held| held.kind as u32), holder, count] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for registrant in registrants {
        bytes.extend_from_slice(&registrant.key.to_be_bytes());
        bytes.extend_from_slice(&registrant.port.target.to_be_bytes());
        bytes.extend_from_slice(&[u8::from(registrant.all_target_ports), 0]);
        let name = registrant.port.initiator.as_bytes();
        bytes.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(name);
    }
    kept::seal(Kept::Reservations, unit, &bytes)
}

/// Reads what `emit` wrote for the same unit; the bytes are believed in nothing.
pub(super) fn parse(bytes: &[u8], unit: u64) -> Result<Registry, RestoreError> {
    let mut rest = kept::open(Kept::Reservations, unit, bytes)?;
    let kind = u32::from_be_bytes(rest.take()?);
    let holder = usize::try_from(u32::from_be_bytes(rest.take()?));
    let count = usize::try_from(u32::from_be_bytes(rest.take()?));
    let count = count.ok().filter(|count| *count <= limits::REGISTRANTS_MAX);
    let persists = count.is_some_and(|count| count > 0);
    let mut registry = Registry { persists, ..Registry::default() };
    let mut ports = Vec::new();
    for _ in 0..count.ok_or(RestoreError::Damaged)? {
        let registrant = registrant(&mut rest)?;
        ports.push(registrant.port.clone());
        // Older daemons kept one port in other letters as another one: it is what it was first.
        if registry.registrant(&registrant.port).is_none() {
            registry.registrants.push(registrant);
        }
    }
    rest.end()?;
    if kind != 0 {
        let kind = u8::try_from(kind).ok().filter(|kind| *kind < 16).and_then(Type::from_code);
        let holder = holder.ok().and_then(|holder| ports.get(holder).cloned());
        let (Some(kind), Some(holder)) = (kind, holder) else { return Err(RestoreError::Damaged) };
        registry.reservation = Some(Reservation { kind, holder });
    }
    Ok(registry)
}

fn registrant(rest: &mut Reader<'_>) -> Result<Registrant, RestoreError> {
    let key = u64::from_be_bytes(rest.take()?);
    let target = u16::from_be_bytes(rest.take()?);
    let [all, _] = rest.take()?;
    let length = usize::try_from(u32::from_be_bytes(rest.take()?));
    let length = length.ok().filter(|length| *length <= limits::PORT_NAME_LEN_MAX);
    let name = rest.bytes(length.ok_or(RestoreError::Damaged)?)?;
    let name = core::str::from_utf8(name).map_err(|_| RestoreError::Damaged)?;
    let initiator = name.to_ascii_lowercase();
    if key == 0 || all > 1 {
        return Err(RestoreError::Damaged);
    }
    let port = Port { initiator, target };
    Ok(Registrant { port, key, all_target_ports: all == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    fn registry(count: u64, kind: Option<Type>, holder: u64) -> Registry {
        let port = |index| Port { initiator: format!("iqn.a,i,0x{index:012x}"), target: 1 };
        Registry {
            persists: count > 0,
            registrants: (0..count)
                .map(|index| Registrant {
                    port: port(index),
                    key: index + 1,
                    all_target_ports: index % 2 == 1,
                })
                .collect(),
            reservation: kind.map(|kind| Reservation { kind, holder: port(holder) }),
            ..Registry::default()
        }
    }

    #[test]
    fn what_was_saved_is_restored() {
        for kind in Type::ALL {
            let saved = registry(3, Some(kind), 2);
            assert_eq!(parse(&emit(&saved, 7), 7), Ok(saved));
        }
        let none = registry(0, None, 0);
        assert_eq!(parse(&emit(&none, 7), 7), Ok(none));
        let fleeting = Registry { persists: false, ..registry(3, Some(Type::ExclusiveAccess), 1) };
        assert_eq!(parse(&emit(&fleeting, 7), 7), Ok(registry(0, None, 0)));
    }

    /// An older daemon kept names as initiators wrote them.
    #[test]
    fn ports_that_are_one_in_other_letters_are_one() {
        let mut old = registry(3, Some(Type::ExclusiveAccess), 1);
        old.registrants[1].port.initiator = "iqn.A,i,0x000000000000".into();
        old.reservation = Some(Reservation {
            kind: Type::ExclusiveAccess,
            holder: old.registrants[1].port.clone(),
        });
        let read = parse(&emit(&old, 7), 7).expect("it is ours");
        let ports: Vec<_> = read.registrants.iter().map(|one| &*one.port.initiator).collect();
        assert_eq!(ports, ["iqn.a,i,0x000000000000", "iqn.a,i,0x000000000002"]);
        assert_eq!(read.reservation.expect("it is held").holder, read.registrants[0].port);
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let good = emit(&registry(2, Some(Type::WriteExclusive), 1), 7);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut], 7).is_err(), "cut at {cut}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(parse(&bad, 7).is_err(), "changed at {at}");
        }
    }

    proptest! {
        /// With a right checksum, so that what lies behind it is reached.
        #[test]
        fn hostile_bytes_are_refused_or_sound(
            body in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u32..20,
            holder in 0_u32..4, count in 0_u32..4,
        ) {
            let mut bytes = Vec::new();
            for number in [kind, holder, count] {
                bytes.extend(number.to_be_bytes());
            }
            bytes.extend(body);
            let bytes = kept::seal(Kept::Reservations, 7, &bytes);
            if let Ok(registry) = parse(&bytes, 7) {
                prop_assert!(registry.registrants.len() <= limits::REGISTRANTS_MAX);
                let held = registry.reservation.as_ref();
                prop_assert!(held.is_none_or(|held| registry.standing(&held.holder).holds));
            }
        }
    }
}
