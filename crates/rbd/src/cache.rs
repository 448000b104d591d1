// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an acknowledged write means, by what Ceph's configuration says of the image's caches, and
//! how the image is to be opened therefore.
#![forbid(unsafe_code)]

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

    /// How an image is to be opened that was opened by `way` and then had these options.
    pub(crate) fn better(&self, way: Way) -> Way {
        if self.forgets_failures() && !way.without_cache {
            return Way { without_cache: true, lends: !self.has_persistent_cache() };
        }
        Way { lends: !self.has_memory_cache() && !self.has_persistent_cache(), ..way }
    }

    /// What can be given back at once, bytes: the unit that librbd goes by.
    pub(crate) fn discard_granularity(&self) -> u32 {
        let bytes = self.find("rbd_discard_granularity_bytes").and_then(|text| text.parse().ok());
        let right = |bytes: &u32| bytes.is_power_of_two() && (512..=32 << 20).contains(bytes);
        bytes.filter(right).unwrap_or(GRANULARITY)
    }
}

/// How an image is opened, beyond what its configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// Without a cache in memory, or else with one that forgets nothing.
    pub(crate) without_cache: bool,
    /// What is written is lent to the library, not copied by it. A cache of the library would keep
    /// what is lent, and it ends no write before it has given that back: some never.
    pub(crate) lends: bool,
}

impl Way {
    /// What the library is told before it connects.
    pub(crate) fn options(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        // The image or its pool may insist on a cache: what it says of its own goes before this.
        let cache = [("rbd_cache", "false"), ("rbd_cache_policy", "writeback")];
        let copies = [("rbd_disable_zero_copy_writes", if self.lends { "false" } else { "true" })];
        cache.into_iter().filter(move |_| self.without_cache).chain(copies)
    }

    /// What makes it quicker where the release knows it, in this order.
    ///
    /// Without a cache nothing in the library waits for the cluster when an operation begins, but
    /// where too many are under way: those are bounded by our memory. So operations begin in the
    /// thread that asks, and not in one of the library's, which would have to be woken.
    pub(crate) fn hints(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let hints = [
            ("objecter_inflight_ops", UNBOUNDED),
            ("objecter_inflight_op_bytes", UNBOUNDED),
            ("rbd_non_blocking_aio", "false"),
        ];
        hints.into_iter().filter(move |_| self.lends)
    }
}

/// Operations, or bytes of them, that an image never has under way: 2^50.
const UNBOUNDED: &str = "1125899906842624";

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
    fn an_image_is_opened_without_a_cache_or_as_it_is_told() {
        let (first, copied) = (Way::default(), Way { without_cache: true, lends: false });
        let (lent, quick) = (Way { lends: true, ..first }, Way { lends: true, ..copied });
        let cache = |on, policy| vec![("rbd_cache", on), ("rbd_cache_policy", policy)];
        let persistent = ("rbd_persistent_cache_mode", "ssd");
        for (list, before, then) in [
            (cache("true", "writearound"), first, quick),
            (cache("false", "writeback"), quick, quick),
            // The image insists on its cache.
            (cache("true", "writeback"), quick, copied),
            (cache("true", "writearound"), quick, copied),
            (cache("true", "writeback"), first, first),
            (cache("true", "writethrough"), first, first),
            (cache("false", "writearound"), first, lent),
            ([cache("false", "writearound"), vec![persistent]].concat(), first, first),
            ([cache("true", "writearound"), vec![persistent]].concat(), first, copied),
            (vec![], first, first),
        ] {
            assert_eq!(options(&list).better(before), then, "{list:?} after {before:?}");
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
