// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at the images of a configuration, side by side: who has many of them on a cluster that is
//! silent waits for it once.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::anyhow;
use control::words;
use rbd::Seen;
use store::spec::RbdSpec;
use store::spec::Spec;
use target::StoreError;
use target::Stores;

use super::Draft;
use crate::output;

/// Images that are looked at at once: each has a client of the cluster, with some dozen threads.
const AT_ONCE: usize = 8;

/// Between two words about what is waited for.
const NOTICE: Duration = Duration::from_secs(5);

/// An image of a disk.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) target: String,
    pub(crate) lun: u16,
    pub(crate) image: RbdSpec,
    pub(crate) seen: Result<Seen>,
}

impl Draft {
    /// The images of all disks.
    pub(crate) fn describe_images(&self) -> Vec<Described> {
        let luns = self.targets.iter().flat_map(|target| {
            target.luns.iter().map(|lun| (target.name.as_str(), lun.number, &lun.spec))
        });
        let all: Vec<(&str, u16, &RbdSpec)> = luns
            .flat_map(|(target, lun, spec)| {
                images_of(spec).into_iter().map(move |image| (target, lun, image))
            })
            .collect();
        let images: Vec<&RbdSpec> = all.iter().map(|(.., image)| *image).collect();
        let described = all.iter().zip(examine(&images)).map(|((target, lun, image), seen)| {
            Described { target: (*target).to_owned(), lun: *lun, image: (*image).clone(), seen }
        });
        described.collect()
    }
}

/// The images of a store, in the order in which they are looked at.
pub(super) fn images_of(spec: &Spec) -> Vec<&RbdSpec> {
    match spec {
        Spec::Rbd(image) => vec![image],
        Spec::Stripe { stores, .. } => stores.iter().flat_map(images_of).collect(),
        Spec::Filtered { behind, .. } => images_of(behind),
        Spec::Memory { .. }
        | Spec::Null { .. }
        | Spec::File(_)
        | Spec::Iso { .. }
        | Spec::Remote(_)
        | Spec::Scsi(_) => Vec::new(),
    }
}

/// Whether images of a store are made that are missing.
pub(crate) fn makes_images(store: &str) -> bool {
    let Ok(spec) = store.parse::<Spec>() else { return false };
    images_of(&spec).iter().any(|image| image.create && image.size.is_some())
}

/// Whether what a store has of Ceph are snapshots.
pub(crate) fn is_of_snapshots(store: &str) -> bool {
    let Ok(spec) = store.parse::<Spec>() else { return false };
    images_of(&spec).iter().all(|image| image.snapshot.is_some())
}

/// What each image is, in their order; says meanwhile that it waits.
pub(super) fn examine(images: &[&RbdSpec]) -> VecDeque<Result<Seen>> {
    look_at(images, NOTICE, output::say, |image| Ok(Stores::examine_image(image)?))
}

/// Waits for the clusters of a store.
///
/// # Errors
/// One does not answer. What else may be wrong is told by whoever opens the store.
pub(crate) fn await_clusters(store: &str) -> Result<()> {
    let Ok(spec) = store.parse() else { return Ok(()) };
    let images = images_of(&spec);
    let seen = look_at(&images, NOTICE, |_| (), |image| Ok(Stores::examine_image(image)?));
    seen.into_iter().filter_map(Result::err).find(is_silence).map_or(Ok(()), Err)
}

/// As whom to which cluster, in the words of the configuration.
fn cluster(image: &RbdSpec) -> (Option<&str>, Option<&str>, Option<&str>) {
    (image.conf.as_deref(), image.user.as_deref(), image.keyring.as_deref())
}

fn is_silence(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<StoreError>();
    matches!(error, Some(StoreError::Rbd(error)) if error.is_silence())
}

/// What `look` finds of each. Images of a cluster that did not answer are not looked at any more.
fn look_at<T: Send>(
    images: &[&RbdSpec],
    notice: Duration,
    say: impl Fn(String),
    look: impl Fn(&RbdSpec) -> Result<T> + Sync,
) -> VecDeque<Result<T>> {
    let left = Mutex::new(images.iter().copied().enumerate());
    let silent = Mutex::new(BTreeMap::new());
    let examine = |image: &RbdSpec| {
        let before = lock(&silent).get(&cluster(image)).cloned();
        if let Some(before) = before {
            let place = image.place();
            return Err(anyhow!(
                "rbd:{place}: its cluster does not answer, as rbd:{before} has shown; \
                 try: ceph health detail"
            ));
        }
        look(image)
    };
    let mut found = BTreeMap::new();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for _ in 0..AT_ONCE.min(images.len()) {
            let (left, silent, examine, tell) = (&left, &silent, &examine, tell.clone());
            scope.spawn(move || {
                loop {
                    let next = lock(left).next();
                    let Some((number, image)) = next else { return };
                    let seen = examine(image);
                    if seen.as_ref().is_err_and(is_silence) {
                        let place = image.place().to_string();
                        lock(silent).entry(cluster(image)).or_insert(place);
                    }
                    // Who has asked waits for all.
                    let _ = tell.send((number, seen));
                }
            });
        }
        drop(tell);
        let begun = Instant::now();
        loop {
            match told.recv_timeout(notice) {
                Ok((number, seen)) => {
                    found.insert(number, seen);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let missing = (images.len() - found.len()) as u64;
                    say(format!(
                        "waiting for {} of Ceph ({} s)",
                        words::count(missing, "image"),
                        begun.elapsed().as_secs()
                    ));
                }
            }
        }
    });
    found.into_values().collect()
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What the lock guards is whole between any two statements.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(words: &[String]) -> Vec<RbdSpec> {
        let spec = |word: &String| match word.parse() {
            Ok(Spec::Rbd(image)) => image,
            other => panic!("{other:?}"),
        };
        words.iter().map(spec).collect()
    }

    fn silence() -> anyhow::Error {
        let (place, seconds) = ("rbd/a".to_owned(), 60);
        StoreError::Rbd(rbd::RbdError::Silent { place, seconds }).into()
    }

    /// 20 images of a silent cluster cost as much time as one, and those of another one are looked
    /// at beside them.
    #[test]
    fn a_silent_cluster_is_waited_for_once() {
        const TIME: Duration = Duration::from_millis(300);
        let word = |number: u32| match number {
            0..20 => format!("rbd:rbd/{number},conf=silent"),
            _ => format!("rbd:rbd/{number}"),
        };
        let specs = specs(&(0..24).map(word).collect::<Vec<_>>());
        let images: Vec<&RbdSpec> = specs.iter().collect();
        let said = Mutex::new(Vec::new());
        let say = |text| lock(&said).push(text);
        let begun = Instant::now();
        let found = look_at(&images, TIME / 3, say, |image| {
            if image.conf.is_none() {
                return Ok(image.image.clone());
            }
            thread::sleep(TIME);
            Err(silence())
        });
        // One after the other take twenty.
        assert!(begun.elapsed() < TIME * 10, "{:?}", begun.elapsed());
        assert_eq!(found.len(), 24);
        for (number, seen) in found.into_iter().enumerate() {
            match seen {
                Ok(name) => assert!(number >= 20 && name == number.to_string()),
                Err(error) => assert!(number < 20 && error.to_string().contains("not answer")),
            }
        }
        let said = lock(&said);
        assert!(said.iter().any(|text| text == "waiting for 24 images of Ceph (0 s)"), "{said:?}");
    }

    #[test]
    fn images_that_would_be_made_are_known_wherever_they_are() {
        for word in ["rbd:rbd/a,create,size=1G", "stripe:64K(memory:1M;rbd:a/b,create,size=1M)"] {
            assert!(makes_images(word), "{word}");
        }
        for word in ["rbd:rbd/a", "rbd:rbd/a,size=1G", "file:/a,size=1G", "memory:1M"] {
            assert!(!makes_images(word), "{word}");
        }
        assert!(is_of_snapshots("rbd:rbd/a@monday") && !is_of_snapshots("rbd:rbd/a"));
    }

    #[test]
    fn what_is_wrong_with_one_image_is_not_wrong_with_the_next() {
        let specs = specs(&["rbd:rbd/a".to_owned(), "rbd:rbd/b".to_owned()]);
        let images: Vec<&RbdSpec> = specs.iter().collect();
        let found = look_at(
            &images,
            NOTICE,
            |_| (),
            |image| match &*image.image {
                "a" => Err(anyhow!("no such image")),
                _ => Ok(()),
            },
        );
        assert!(found[0].is_err() && found[1].is_ok(), "{found:?}");
    }
}
