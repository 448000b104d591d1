// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An I_T nexus: the LUN map as one initiator port sees it (SAM-5 §4.7, SPC-4 §6.33). It changes
//! while the nexus lives ([`Nexus::remap`]).

use crate::attention::Attention;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::NexusState;
use crate::pass;
use crate::sense;
use crate::sense::Fault;
use crate::spc;
use crate::table;
use crate::task::Request;
use crate::task::Started;
use crate::task::Step;
use crate::task::Task;
use crate::task::data;
use crate::task::good;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::LunField;
use wire::scsi::Lun;
use wire::scsi::cdb::CdbView;
use wire::scsi::inquiry;
use wire::scsi::opcode::Opcode;

/// Who stands at both ends of a nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NexusNames {
    /// `iqn...,i,0x<isid>`; nulls at its end do not count.
    pub initiator_port: String,
    /// `iqn...`
    pub target_device: String,
    /// Target portal group tag, which makes the target port (RFC 7143 §4.4.2).
    pub portal_group_tag: u16,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub relative_port: u16,
}

/// Whether the transport of a nexus carries QUERY TASK, QUERY TASK SET, QUERY ASYNCHRONOUS EVENT
/// and I_T NEXUS RESET (RFC 7144 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // they come together
pub enum Queries {
    /// None of them.
    #[default]
    None,
    /// All of them.
    All,
}

/// An I_T nexus. It belongs to one session and one thread.
#[derive(Debug)]
pub struct Nexus {
    names: NexusNames,
    queries: Queries,
    /// Ascending by number, each number once.
    map: Vec<Mapping>,
    /// Numbers that had a unit and have it no more, each once.
    former: Vec<u16>,
    /// Numbers that have another unit since somebody asked.
    exchanged: Vec<u16>,
}

#[derive(Debug)]
struct Mapping {
    number: u16,
    mapped: Arc<Mapped>,
}

/// A unit as a nexus has it. Tasks count their references here and not at the unit, whose count
/// every reactor would write to.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) nexus_state: Arc<NexusState>,
}

impl Nexus {
    /// Registers with every unit of the map: a unit attention waits there for it, 29/07 if the unit
    /// knows the initiator port already, 29/00 if not. Of two entries for one number the first
    /// counts.
    #[must_use]
    pub fn new(mut names: NexusNames, map: Vec<(u16, Arc<LogicalUnit>)>) -> Self {
        // On the wire the name ends with a null; what TransportIDs name does not.
        names.initiator_port.truncate(names.initiator_port.trim_end_matches('\0').len());
        let map =
            mappings(map, |unit| Arc::new(Mapped { nexus_state: unit.nexus_state(&names), unit }));
        Self { names, queries: Queries::None, map, former: Vec::new(), exchanged: Vec::new() }
    }

    /// Takes another map; true if it differs from the one before. Every unit that was there before
    /// and still is tells so (3F/0E, SPC-4 §6.33); one that is new tells what it tells a new nexus,
    /// and so where another one had its number, which [`take_exchanged`] then gives.
    /// Commands for a unit that is no longer there go on to their end, and their outcome is of no
    /// matter for the unit.
    ///
    /// [`take_exchanged`]: Self::take_exchanged
    pub fn remap(&mut self, map: Vec<(u16, Arc<LogicalUnit>)>) -> bool {
        let before = core::mem::take(&mut self.map);
        let old = |unit: &Arc<LogicalUnit>| {
            before.iter().find(|mapping| Arc::ptr_eq(&mapping.mapped.unit, unit))
        };
        let names = &self.names;
        self.map = mappings(map, |unit| match old(&unit) {
            Some(mapping) => Arc::clone(&mapping.mapped),
            None => Arc::new(Mapped { nexus_state: unit.nexus_state(names), unit }),
        });
        let same = |(one, other): (&Mapping, &Mapping)| {
            one.number == other.number && Arc::ptr_eq(&one.mapped, &other.mapped)
        };
        if self.map.len() == before.len() && self.map.iter().zip(&before).all(same) {
            return false;
        }
        for mapping in &before {
            let unit = &mapping.mapped.unit;
            if self.mapped_unit(unit).is_some() {
                mapping.mapped.nexus_state.attentions.establish(Attention::LunsChanged);
            } else {
                unit.end_legacy_reservation(Some(&self.names));
                mapping.mapped.nexus_state.copies.clear();
            }
        }
        self.note_exchanges(&before);
        true
    }

    /// Numbers that have another unit than before, since this was asked last. What is on its way to
    /// them was sent to the unit before: start it as [`Request::unaware`].
    pub fn take_exchanged(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.exchanged)
    }

    fn note_exchanges(&mut self, before: &[Mapping]) {
        for old in before {
            let now = self.map.iter().find(|mapping| mapping.number == old.number);
            let stays = now.is_some_and(|now| Arc::ptr_eq(&now.mapped.unit, &old.mapped.unit));
            if !stays && !self.former.contains(&old.number) {
                self.former.push(old.number);
            }
        }
        for now in &self.map {
            let Some(at) = self.former.iter().position(|number| *number == now.number) else {
                continue;
            };
            self.former.swap_remove(at);
            self.exchanged.push(now.number);
            // What it tells a new nexus says nothing of the number.
            now.mapped.nexus_state.attentions.establish(Attention::LunsChanged);
        }
    }

    /// The initiator has asked which units there are: none of them needs to tell that it should
    /// (SAM-5 §5.14.2).
    pub(crate) fn luns_reported(&self) {
        for mapping in &self.map {
            mapping.mapped.nexus_state.attentions.withdraw(Attention::LunsChanged);
        }
    }

    /// The same over a transport with these functions.
    #[must_use]
    pub fn with_queries(self, queries: Queries) -> Self {
        Self { queries, ..self }
    }

    /// A command that is likely to be started next: its store has what it needs brought into the
    /// caches of the processor. Nothing depends on it.
    #[inline]
    pub fn foresee(&self, lun: LunField, cdb: &Cdb) {
        let cdb = CdbView::new(cdb);
        let writes = match cdb.opcode() {
            Opcode::READ_10 | Opcode::READ_16 => false,
            Opcode::WRITE_10 | Opcode::WRITE_16 => true,
            _ => return,
        };
        let Some(Mapped { unit, .. }) = self.mapped(lun).map(|mapped| &**mapped) else { return };
        let Ok(extent) = unit.extent(cdb.lba(), u64::from(cdb.transfer_length())) else { return };
        let Ok(length) = u32::try_from(extent.length) else { return };
        match writes {
            true => unit.store().expect_write(extent.offset, length),
            false => unit.store().expect_read(extent.offset, length),
        }
    }

    /// Starts a command.
    pub fn start(&self, request: &Request) -> (Task, Step) {
        let cdb = CdbView::new(&request.cdb);
        let Some(mapped) = self.mapped(request.lun) else {
            return Task::elsewhere(self.start_elsewhere(request, &cdb));
        };
        let simple = matches!(request.attribute, Attribute::Simple | Attribute::Untagged);
        if !simple || !mapped.nexus_state.running.enter(&mapped.unit) {
            return Task::listed(self, Arc::clone(mapped), request);
        }
        Task::running(Arc::clone(mapped), request, self.begin(mapped, request))
    }

    /// Puts a command whose turn it is through the gate.
    #[inline]
    pub(crate) fn begin(&self, mapped: &Mapped, request: &Request) -> Result<Started, Fault> {
        let (unit, nexus_state) = (&*mapped.unit, &*mapped.nexus_state);
        let cdb = CdbView::new(&request.cdb);
        Context { nexus: self, unit, nexus_state, request, cdb }.start()
    }

    /// The unit at `lun`, if one is mapped there.
    #[must_use]
    pub fn unit(&self, lun: LunField) -> Option<&Arc<LogicalUnit>> {
        self.mapped(lun).map(|mapped| &mapped.unit)
    }

    /// What RESERVE gave this nexus ends, as it does when the nexus is lost or reset (SPC-2
    /// §5.5.1). Gives the units of which it had something.
    #[must_use]
    pub fn end_reservations(&self) -> Vec<Arc<LogicalUnit>> {
        let units = self.map.iter().map(|mapping| &mapping.mapped.unit);
        let ended = units.filter(|unit| unit.end_legacy_reservation(Some(&self.names)));
        ended.map(Arc::clone).collect()
    }

    /// The I_T nexus is lost (SAM-5 §6.3.4): establishes 29/07 for the next session of the same
    /// initiator port.
    pub fn lost(self) {
        for mapping in &self.map {
            mapping.mapped.unit.end_legacy_reservation(Some(&self.names));
            mapping.mapped.nexus_state.copies.clear();
        }
        self.reinstated();
    }

    /// As [`lost`](Self::lost), but the same initiator port is back already: what RESERVE gave it
    /// stays (RFC 7143 §4.4.3.2).
    pub fn reinstated(self) {
        for mapping in &self.map {
            let (unit, nexus_state) = (&mapping.mapped.unit, &mapping.mapped.nexus_state);
            unit.task_set().lock().clear_fault(unit, Some(nexus_state));
            nexus_state.echo.wipe();
            pass::allow_removal(unit, nexus_state);
            nexus_state.attentions.establish(Attention::NexusLoss);
        }
    }

    /// Who stands at both ends.
    #[must_use]
    pub const fn names(&self) -> &NexusNames {
        &self.names
    }

    pub(crate) const fn queries(&self) -> Queries {
        self.queries
    }

    /// Every unit of the map once.
    pub fn units(&self) -> impl Iterator<Item = &Arc<LogicalUnit>> {
        let all = self.map.iter().map(|mapping| &mapping.mapped.unit);
        let earlier = |at: usize, unit: &Arc<LogicalUnit>| {
            self.map.iter().take(at).any(|mapping| Arc::ptr_eq(&mapping.mapped.unit, unit))
        };
        all.enumerate().filter(move |(at, unit)| !earlier(*at, unit)).map(|(_, unit)| unit)
    }

    /// The mapped numbers, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.map.iter().map(|mapping| mapping.number)
    }

    /// The first number that `unit` is mapped to.
    #[must_use]
    pub fn number_of(&self, unit: &Arc<LogicalUnit>) -> Option<u16> {
        let mut all = self.map.iter();
        all.find(|mapping| Arc::ptr_eq(&mapping.mapped.unit, unit)).map(|mapping| mapping.number)
    }

    /// What `unit` keeps for this nexus; there is one even if it is mapped twice.
    pub(crate) fn state_at(&self, unit: &LogicalUnit) -> Option<&NexusState> {
        let mut all = self.map.iter().map(|mapping| &*mapping.mapped);
        all.find(|mapped| core::ptr::eq(&raw const *mapped.unit, unit))
            .map(|mapped| &*mapped.nexus_state)
    }

    /// Tells every other nexus of `unit`; all of them, if this one has it no more.
    pub(crate) fn tell_others(&self, unit: &LogicalUnit, attention: Attention) {
        match self.state_at(unit) {
            Some(nexus_state) => unit.establish_elsewhere(nexus_state, attention),
            None => unit.establish_everywhere(attention),
        }
    }

    /// The unit as this nexus has it.
    pub(crate) fn mapped_unit(&self, unit: &LogicalUnit) -> Option<&Arc<Mapped>> {
        let mut all = self.map.iter().map(|mapping| &mapping.mapped);
        all.find(|mapped| core::ptr::eq(&raw const *mapped.unit, unit))
    }

    /// The disk with this NAA, among those that this nexus sees.
    pub(crate) fn unit_named(&self, naa: &[u8]) -> Option<&Arc<Mapped>> {
        let mut all = self.map.iter().map(|mapping| &mapping.mapped);
        all.find(|mapped| mapped.unit.takes_part_in_copies() && mapped.unit.identity().naa == naa)
    }

    #[inline]
    fn mapped(&self, lun: LunField) -> Option<&Arc<Mapped>> {
        let Some(Lun::Unit(number)) = Lun::parse(lun) else { return None };
        let index = self.map.binary_search_by_key(&number, |mapping| mapping.number).ok()?;
        self.map.get(index).map(|mapping| &mapping.mapped)
    }

    /// A command for the REPORT LUNS well known unit, or for no unit at all (SPC-4 §6.6.1, §6.39,
    /// SAM-5 §4.7.5.1).
    fn start_elsewhere(&self, request: &Request, cdb: &CdbView<'_>) -> Result<Started, Fault> {
        let well_known = Lun::parse(request.lun) == Some(Lun::ReportLuns);
        let check = || -> Result<(), Fault> { table::DISK.find(cdb)?.check(&request.cdb) };
        match cdb.opcode() {
            Opcode::INQUIRY => {
                check()?;
                let peripheral =
                    if well_known { inquiry::TYPE_WELL_KNOWN } else { inquiry::NOT_SUPPORTED };
                spc::inquiry::elsewhere(cdb, peripheral)
            }
            Opcode::REPORT_LUNS => {
                check()?;
                spc::misc::report_luns(self, cdb)
            }
            Opcode::REQUEST_SENSE => {
                check()?;
                let sense = if well_known { sense::NO_SENSE } else { sense::UNIT_NOT_SUPPORTED };
                Ok(data(spc::misc::sense_data(cdb, sense), u32::from(cdb.byte(4))))
            }
            Opcode::TEST_UNIT_READY if well_known => {
                check()?;
                Ok(good(0))
            }
            _ if well_known => Err(sense::INVALID_OPCODE.into()),
            _ => Err(sense::UNIT_NOT_SUPPORTED.into()),
        }
    }
}

/// A map in order; of two entries for one number the first counts.
fn mappings(
    map: Vec<(u16, Arc<LogicalUnit>)>,
    mapped: impl Fn(Arc<LogicalUnit>) -> Arc<Mapped>,
) -> Vec<Mapping> {
    let mut map: Vec<_> =
        map.into_iter().map(|(number, unit)| Mapping { number, mapped: mapped(unit) }).collect();
    map.sort_by_key(|mapping| mapping.number);
    map.dedup_by_key(|mapping| mapping.number);
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing::Seen;
    use crate::testing::codes;
    use crate::testing::names;
    use crate::testing::request;
    use crate::testing::request_at;
    use crate::testing::run;
    use crate::testing::sense_of;
    use alloc::vec;

    const REPORT_LUNS: [u8; 12] = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

    fn three_units() -> (Bench, Nexus) {
        let bench = Bench::new();
        let map = [300, 1, 20000].map(|number| (number, Arc::clone(&bench.unit)));
        let nexus = Nexus::new(names("iqn.b,i,0x1"), map.to_vec());
        (bench, nexus)
    }

    fn report(nexus: &Nexus, lun: Lun, select: u8) -> Vec<u8> {
        let mut cdb = REPORT_LUNS;
        cdb[2] = select;
        let completion = run(nexus, request(lun, &cdb, &[], 4096), &[]);
        completion.data_in.expect("a list").to_vec()
    }

    /// Covers-scsi: A0.
    #[test]
    fn report_luns_works_on_any_lun_and_before_attentions() {
        let (_bench, nexus) = three_units();
        let list = report(&nexus, Lun::Unit(0), 0);
        assert_eq!(list[..4], [0, 0, 0, 24]);
        assert_eq!(list[8..12], [0, 1, 0, 0]);
        assert_eq!(list[16..20], [0x41, 0x2c, 0, 0]);
        assert_eq!(list[24..28], [0xd2, 0, 0x4e, 0x20]);
        assert_eq!(report(&nexus, Lun::Unit(1), 0), list);
        assert_eq!(report(&nexus, Lun::ReportLuns, 0), list);
        assert_eq!(report(&nexus, Lun::ReportLuns, 1)[8..12], [0xc1, 1, 0, 0]);
        assert_eq!(report(&nexus, Lun::Unit(0), 2).len(), 8 + 4 * 8);
    }

    /// Covers-scsi: A0.
    #[test]
    fn report_luns_cut_by_allocation_says_the_whole_length() {
        let (_bench, nexus) = three_units();
        let mut cdb = REPORT_LUNS;
        cdb[8] = 0;
        cdb[9] = 16;
        let completion = run(&nexus, request(Lun::Unit(0), &cdb, &[], 16), &[]);
        assert_eq!(completion.presented, 16);
        let data = completion.data_in.expect("a list").to_vec();
        assert_eq!((data.len(), data[3]), (16, 24));
    }

    #[test]
    fn report_luns_refuses_other_selections() {
        let (_bench, nexus) = three_units();
        let mut cdb = REPORT_LUNS;
        cdb[2] = 0x10;
        let sense = sense_of(&run(&nexus, request(Lun::Unit(0), &cdb, &[], 16), &[]));
        assert_eq!(codes(sense), (5, 0x24, 0));
    }

    #[test]
    fn what_is_foreseen_is_told_to_the_store_of_its_unit_and_starts_nothing() {
        let bench = Bench::new();
        let foresee = |lun, bytes: &[u8]| {
            let request = request(lun, bytes, &[], 0);
            bench.nexus.foresee(request.lun, &request.cdb);
        };
        foresee(Lun::Unit(0), &[0x28, 0, 0, 0, 0, 3, 0, 0, 2, 0]);
        foresee(Lun::Unit(0), &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0]);
        assert_eq!(*bench.disk.expected.lock(), [Seen::Read(1536, 1024), Seen::Write(2560, 4096)]);
        // No unit, beyond its end, another command.
        foresee(Lun::Unit(5), &[0x28, 0, 0, 0, 0, 3, 0, 0, 2, 0]);
        foresee(Lun::Unit(0), &[0x2a, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
        foresee(Lun::Unit(0), &[0x35, 0, 0, 0, 0, 3, 0, 0, 2, 0]);
        assert_eq!(bench.disk.expected.lock().len(), 2);
        assert_eq!(*bench.disk.log.lock(), []);
    }

    #[test]
    fn an_unmapped_lun_answers_by_the_rules() {
        let bench = Bench::new();
        let at = |bytes: &[u8]| run(&bench.nexus, request(Lun::Unit(5), bytes, &[], 255), &[]);
        let inquiry = at(&[0x12, 0, 0, 0, 36, 0]).data_in.expect("data").to_vec();
        assert_eq!((inquiry.len(), inquiry[0]), (36, 0x7f));
        let pages = at(&[0x12, 1, 0, 0, 36, 0]).data_in.expect("data").to_vec();
        assert_eq!(pages, [0x7f, 0, 0, 1, 0]);
        let sense = at(&[3, 0, 0, 0, 18, 0]).data_in.expect("data").to_vec();
        assert_eq!(codes(wire::scsi::Sense::parse(&sense)), (5, 0x25, 0));
        for cdb in [&[0_u8; 6][..], &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0xff]] {
            assert_eq!(codes(sense_of(&at(cdb))), (5, 0x25, 0));
        }
        let strange = request_at(LunField([0x80, 0, 0, 0, 0, 0, 0, 0]), &[0; 6], &[], 0);
        assert_eq!(codes(sense_of(&run(&bench.nexus, strange, &[]))), (5, 0x25, 0));
    }

    #[test]
    fn the_well_known_unit_knows_four_commands() {
        let bench = Bench::new();
        let at = |bytes: &[u8]| run(&bench.nexus, request(Lun::ReportLuns, bytes, &[], 255), &[]);
        assert_eq!(at(&[0; 6]).status, 0);
        assert_eq!(at(&[0x12, 0, 0, 0, 36, 0]).data_in.expect("data").to_vec()[0], 0x1e);
        assert_eq!(at(&[3, 0, 0, 0, 18, 0]).data_in.expect("data").to_vec()[2], 0);
        assert_eq!(codes(sense_of(&at(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]))), (5, 0x20, 0));
    }

    #[test]
    fn a_lun_is_the_same_in_each_address_method() {
        let (bench, nexus) = three_units();
        for head in [[0, 1, 0, 0], [0x40, 1, 0, 0], [0xd2, 0, 0, 1]] {
            let [a, b, c, d] = head;
            let unit = nexus.unit(LunField([a, b, c, d, 0, 0, 0, 0])).expect("mapped");
            assert!(Arc::ptr_eq(unit, &bench.unit));
        }
    }

    fn ready_at(nexus: &Nexus, lun: u16) -> (u8, u8, u8) {
        codes(sense_of(&run(nexus, request(Lun::Unit(lun), &[0; 6], &[], 0), &[])))
    }

    const GOOD: (u8, u8, u8) = (0, 0, 0);
    const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);
    const NOT_SUPPORTED: (u8, u8, u8) = (5, 0x25, 0);

    #[test]
    fn another_map_is_told_by_each_unit_that_stays() {
        let units = [Bench::new().unit, Bench::new().unit, Bench::new().unit];
        let [a, b, c] = units.each_ref().map(Arc::clone);
        let first = vec![(0, Arc::clone(&a)), (1, Arc::clone(&b))];
        let mut nexus = Nexus::new(names("iqn.m,i,0x1"), first.clone());
        assert_eq!([0, 1].map(|lun| ready_at(&nexus, lun)), [(6, 0x29, 0); 2]);
        assert!(!nexus.remap(first), "the same map is no change");
        assert_eq!(ready_at(&nexus, 0), GOOD);

        assert!(nexus.remap(vec![(0, Arc::clone(&a)), (2, Arc::clone(&c))]));
        assert_eq!(ready_at(&nexus, 0), LUNS_CHANGED);
        assert_eq!(ready_at(&nexus, 0), GOOD);
        assert_eq!(ready_at(&nexus, 1), NOT_SUPPORTED);
        assert_eq!(ready_at(&nexus, 2), (6, 0x29, 0), "a new unit knows nothing of the nexus");
        assert_eq!(report(&nexus, Lun::Unit(0), 0)[3], 16);

        assert!(nexus.remap(vec![(5, a), (2, c)]), "another number is another map");
        assert_eq!(ready_at(&nexus, 2), LUNS_CHANGED);
        assert_eq!(ready_at(&nexus, 5), LUNS_CHANGED, "it is the unit that knows the nexus");
        assert_eq!(ready_at(&nexus, 0), NOT_SUPPORTED);
    }

    /// What was sent to the unit before never reaches the one that has its number now.
    #[test]
    fn a_number_that_another_unit_has_is_told() {
        let units = [Bench::new().unit, Bench::new().unit, Bench::new().unit];
        let [a, b, c] = units.each_ref().map(Arc::clone);
        let mut nexus = Nexus::new(names("iqn.m,i,0x1"), vec![(0, Arc::clone(&a)), (1, b)]);
        assert_eq!([0, 1].map(|lun| ready_at(&nexus, lun)), [(6, 0x29, 0); 2]);
        assert!(nexus.remap(vec![(0, Arc::clone(&a))]));
        assert!(nexus.take_exchanged().is_empty(), "nobody has it");
        assert!(nexus.remap(vec![(0, a), (1, Arc::clone(&c)), (2, c)]));
        assert_eq!(nexus.take_exchanged(), [1]);
        assert!(nexus.take_exchanged().is_empty());
        let unaware = |lun, cdb: &[u8]| {
            let request = Request { unaware: true, ..request(Lun::Unit(lun), cdb, &[], 512) };
            run(&nexus, request, &[])
        };
        let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        for _ in 0..3 {
            assert_eq!(codes(sense_of(&unaware(1, &read))), (6, 0x3f, 0x03));
        }
        assert!(unaware(1, &[0x12, 0, 0, 0, 36, 0]).data_in.is_some(), "INQUIRY tells what it is");
        assert_eq!(ready_at(&nexus, 1), (6, 0x29, 0));
        assert_eq!(ready_at(&nexus, 1), LUNS_CHANGED);
        assert_eq!(ready_at(&nexus, 1), GOOD);
    }

    /// Covers-scsi: A0.
    #[test]
    fn who_asks_which_units_there_are_needs_not_be_told_to() {
        let units = [Bench::new().unit, Bench::new().unit];
        let map: Vec<_> = (0..).zip(units.iter().map(Arc::clone)).collect();
        let mut nexus = Nexus::new(names("iqn.m,i,0x1"), map.clone());
        assert_eq!([0, 1].map(|lun| ready_at(&nexus, lun)), [(6, 0x29, 0); 2]);
        let mut more = map;
        more.push((7, Bench::new().unit));
        nexus.remap(more);
        let mut wrong = REPORT_LUNS;
        wrong[2] = 0x10;
        run(&nexus, request(Lun::Unit(0), &wrong, &[], 16), &[]);
        assert_eq!(ready_at(&nexus, 0), LUNS_CHANGED, "a refused question is none");
        assert_eq!(report(&nexus, Lun::Unit(0), 0)[3], 24);
        assert_eq!(ready_at(&nexus, 1), GOOD);
    }

    #[test]
    fn initiators_that_are_not_here_are_told_when_they_are_back() {
        let bench = Bench::new();
        let new = || Nexus::new(names("iqn.c,i,0x1"), vec![(0, Arc::clone(&bench.unit))]);
        let here = bench.sense(&[0; 6]);
        assert_eq!(here, None);
        let gone = new();
        assert_eq!(ready_at(&gone, 0), (6, 0x29, 0));
        gone.lost();
        bench.unit.tell_absent_of_other_units();
        let back = new();
        assert_eq!(ready_at(&back, 0), (6, 0x29, 7));
        assert_eq!(ready_at(&back, 0), LUNS_CHANGED);
        assert_eq!(bench.sense(&[0; 6]), None);
    }

    #[test]
    fn attentions_follow_the_initiator_port() {
        let bench = Bench::new();
        let new = || Nexus::new(names("iqn.c,i,0x1"), vec![(0, Arc::clone(&bench.unit))]);
        let ready = |nexus: &Nexus| {
            codes(sense_of(&run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[])))
        };
        let first = new();
        assert_eq!(ready(&first), (6, 0x29, 0));
        assert_eq!(ready(&first), (0, 0, 0));
        first.lost();
        let second = new();
        assert_eq!(ready(&second), (6, 0x29, 7));
        assert_eq!(ready(&second), (0, 0, 0));
        assert_eq!(bench.sense(&[0; 6]), None, "others are not told");
        bench.unit.logical_unit_reset();
        assert_eq!(ready(&second), (6, 0x29, 3));
        assert_eq!(codes(bench.sense(&[0; 6])), (6, 0x29, 3));
        second.commands_cleared(&bench.unit);
        second.commands_cleared_by_iscsi(&bench.unit);
        assert_eq!(ready(&second), (6, 0x2f, 0));
        assert_eq!(ready(&second), (6, 0x47, 0x7f));
        assert_eq!(ready(&second), (0, 0, 0));
    }

    #[test]
    fn lost_ports_are_remembered_up_to_the_limit() {
        let bench = Bench::new();
        for number in 0..crate::limits::LOST_PORTS_MAX + 10 {
            let map = vec![(0, Arc::clone(&bench.unit))];
            Nexus::new(names(&alloc::format!("iqn.x,i,{number}")), map).lost();
        }
        assert_eq!(bench.unit.ports(), crate::limits::LOST_PORTS_MAX + 1);
        assert_eq!(bench.sense(&[0; 6]), None);
    }
}
