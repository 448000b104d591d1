// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an acknowledged write means, by what Ceph's configuration says of the image's caches, and
//! what of it we choose ourselves.
#![forbid(unsafe_code)]

use crate::limits::JOURNAL_ENTRY;

/// Options of an image that are in force: the configuration, the pool's and the image's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    pub(crate) fn new(options: Vec<(String, String)>) -> Self {
        Self(options)
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Whether what was acknowledged may be lost with this process or this host until a flush. What
    /// is not told counts as such.
    ///
    /// - `rbd_cache` keeps writes in this process, in every policy but `writethrough`, or without
    ///   dirty bytes. That it begins as one which writes through
    ///   (`rbd_cache_writethrough_until_flush`) does not count: it ends with the first flush.
    /// - `rbd_persistent_cache_mode` keeps them on this host.
    pub(crate) fn may_lose_acknowledged(&self) -> bool {
        let in_memory = self.has_memory_cache()
            && self.find("rbd_cache_policy") != Some("writethrough")
            && self.find("rbd_cache_max_dirty") != Some("0");
        in_memory || self.has_persistent_cache()
    }

    /// Where writes stay on this side of the cluster, in a word.
    pub(crate) fn cache(&self) -> &'static str {
        match (self.has_persistent_cache(), self.has_memory_cache()) {
            (true, _) => "persistent",
            (false, false) => "none",
            (false, true) if !self.may_lose_acknowledged() => "writethrough",
            (false, true) if self.forgets_failures() => "writearound",
            (false, true) => "writeback",
        }
    }

    /// Whether nothing stands between this process and the cluster. Only then the client compares
    /// and writes as one: its cache in memory knows nothing of it and goes on giving out what was
    /// there before (Ceph 16), or zeroes if somebody reads meanwhile (later ones); and the
    /// persistent one compares with what this client has seen.
    pub(crate) fn has_no_cache(&self) -> bool {
        !self.has_memory_cache() && !self.has_persistent_cache()
    }

    fn has_memory_cache(&self) -> bool {
        self.find("rbd_cache") != Some("false")
    }

    fn has_persistent_cache(&self) -> bool {
        !matches!(self.find("rbd_persistent_cache_mode"), None | Some("" | "disabled"))
    }

    /// Whether a flush may end well though a write that was acknowledged before has failed: a cache
    /// that writes around (Ceph's default) keeps no such write, and tells nobody of it.
    pub(crate) fn forgets_failures(&self) -> bool {
        self.has_memory_cache() && self.find("rbd_cache_policy") == Some("writearound")
    }

    /// Whether the library copies what is written before it says that it has begun.
    pub(crate) fn copies_writes(&self) -> bool {
        self.find("rbd_disable_zero_copy_writes") != Some("false")
    }

    /// Whether a journal takes as one entry what is compared or repeated: librbd cuts what is
    /// written, and aborts the process for what it cannot cut. Not only where there is a journal:
    /// one may come at any time.
    pub(crate) fn has_room_in_journals(&self) -> bool {
        let room = self.find("rbd_journal_max_payload_bytes").map(str::parse::<u64>);
        // 0: as much as an object of it has room for.
        room.is_none_or(|room| room.is_ok_and(|room| room == 0 || room >= JOURNAL_ENTRY))
    }

    /// What can be given back at once, bytes: the unit that librbd goes by.
    pub(crate) fn discard_granularity(&self) -> u32 {
        let bytes = self.find("rbd_discard_granularity_bytes").and_then(|text| text.parse().ok());
        let right = |bytes: &u32| bytes.is_power_of_two() && (512..=32 << 20).contains(bytes);
        bytes.filter(right).unwrap_or(GRANULARITY)
    }
}

/// What the library is told before it connects. It ends a write that was lent to it when it has
/// given back what it was lent, and that is never with a cache that writes through, nor when it was
/// shut out and has no lock: so it copies.
pub(crate) const COPIES: (&str, &str) = ("rbd_disable_zero_copy_writes", "true");

/// In place of a cache that forgets failures: none, or, where the image or its pool insists on one,
/// one that forgets nothing.
pub(crate) const WITHOUT_CACHE: [(&str, &str); 2] =
    [("rbd_cache", "false"), ("rbd_cache_policy", "writeback")];

/// Ceph's own default, bytes.
const GRANULARITY: u32 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &[(&str, &str)]) -> Options {
        Options::new(list.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn caches_are_told_as_what_they_promise() {
        let cache = |on| ("rbd_cache", on);
        for (list, lost) in [
            (vec![], true),
            (vec![cache("true")], true),
            (vec![cache("false")], false),
            (vec![cache("true"), ("rbd_cache_policy", "writearound")], true),
            (vec![cache("true"), ("rbd_cache_policy", "writeback")], true),
            (vec![cache("true"), ("rbd_cache_policy", "writethrough")], false),
            (vec![cache("true"), ("rbd_cache_max_dirty", "0")], false),
            (vec![cache("true"), ("rbd_cache_writethrough_until_flush", "true")], true),
            (vec![cache("false"), ("rbd_persistent_cache_mode", "ssd")], true),
            (vec![cache("false"), ("rbd_persistent_cache_mode", "disabled")], false),
        ] {
            assert_eq!(options(&list).may_lose_acknowledged(), lost, "{list:?}");
        }
    }

    #[test]
    fn caches_are_told_in_a_word() {
        let policy = |name| vec![("rbd_cache", "true"), ("rbd_cache_policy", name)];
        for (list, word) in [
            (vec![("rbd_cache", "false")], "none"),
            (policy("writethrough"), "writethrough"),
            (vec![("rbd_cache", "true"), ("rbd_cache_max_dirty", "0")], "writethrough"),
            (policy("writeback"), "writeback"),
            (vec![("rbd_cache", "false"), ("rbd_persistent_cache_mode", "rwl")], "persistent"),
        ] {
            assert_eq!(options(&list).cache(), word, "{list:?}");
        }
    }

    #[test]
    fn only_without_any_cache_the_cluster_compares() {
        for (list, none) in [
            (vec![], false),
            (vec![("rbd_cache", "true"), ("rbd_cache_policy", "writethrough")], false),
            (vec![("rbd_cache", "false")], true),
            (vec![("rbd_cache", "false"), ("rbd_persistent_cache_mode", "disabled")], true),
            (vec![("rbd_cache", "false"), ("rbd_persistent_cache_mode", "rwl")], false),
        ] {
            assert_eq!(options(&list).has_no_cache(), none, "{list:?}");
        }
    }

    #[test]
    fn small_entries_of_journals_are_seen() {
        assert!(options(&[]).has_room_in_journals());
        for (text, room) in
            [("16384", true), ("65536", true), ("0", true), ("8192", false), ("", false)]
        {
            let options = options(&[("rbd_journal_max_payload_bytes", text)]);
            assert_eq!(options.has_room_in_journals(), room, "{text:?}");
        }
    }

    #[test]
    fn a_cache_that_writes_around_forgets() {
        for (cache, policy, forgets) in [
            ("true", "writearound", true),
            ("false", "writearound", false),
            ("true", "writeback", false),
            ("true", "writethrough", false),
        ] {
            let options = options(&[("rbd_cache", cache), ("rbd_cache_policy", policy)]);
            assert_eq!(options.forgets_failures(), forgets, "{cache} {policy}");
        }
    }

    #[test]
    fn granularities_that_cannot_be_are_not_believed() {
        let of = |text| options(&[("rbd_discard_granularity_bytes", text)]).discard_granularity();
        for (text, bytes) in
            [("4096", 4096), ("", GRANULARITY), ("3", GRANULARITY), ("-1", GRANULARITY)]
        {
            assert_eq!(of(text), bytes, "{text}");
        }
    }
}
