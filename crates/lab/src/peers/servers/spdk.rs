// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SPDK's iscsi_tgt: where it is, the pages that it wants, and what it says of its time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::Error;
use crate::huge::HugePages;
use crate::measure::real;
use crate::programs::installed;

use super::DISK_BYTES;

/// As SPDK makes it of the name `lab`.
pub(super) const TARGET: &str = "iqn.2016-06.io.spdk:lab";

/// What it takes besides its disk, MiB.
const POOLS_MIB: u64 = 1024;

/// It answers within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// An answer has not more bytes.
const ANSWER_MAX: usize = 1 << 20;

/// Where somebody has built it: below $PEERS, as for `bench/run`, or where programs are.
pub(super) fn find() -> Result<PathBuf, String> {
    let cache = || {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cache/lunwire-peers"))
    };
    let peers = std::env::var_os("PEERS").map(PathBuf::from).or_else(cache);
    let built = peers.map(|peers| peers.join("spdk/iscsi_tgt"));
    if let Some(built) = built.as_ref().filter(|built| built.is_file()) {
        return Ok(built.clone());
    }
    let built = built.map(|built| format!("{} or ", built.display())).unwrap_or_default();
    installed("iscsi_tgt", "").map_err(|_| {
        format!("it needs SPDK's iscsi_tgt, built, as {built}in PATH; Debian has no package of it")
    })
}

/// What it has besides its process.
#[derive(Debug)]
pub(super) struct Spdk {
    control: PathBuf,
    pages: Result<HugePages, String>,
}

impl Spdk {
    pub(super) fn new(folder: &Path) -> Self {
        let pages = HugePages::take(folder, (DISK_BYTES >> 20) + POOLS_MIB);
        Self { control: folder.join("control"), pages }
    }

    /// Arguments about memory and orders.
    pub(super) fn words(&self) -> Vec<String> {
        let size = (DISK_BYTES >> 20) + POOLS_MIB;
        // Its locks of processors would stay behind in /var/tmp when it is killed.
        let mut words = format!("-s {size} --num-trace-entries 0 --disable-cpumask-locks -r")
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>();
        words.push(self.control.display().to_string());
        match &self.pages {
            Ok(pages) => {
                words
                    .extend(["--huge-unlink", "--iova-mode", "va", "--huge-dir"].map(String::from));
                words.push(pages.mount().display().to_string());
            }
            Err(_) => words.push("--no-huge".to_owned()),
        }
        words
    }

    /// In which pages its memory is.
    pub(super) fn pages(&self) -> String {
        match &self.pages {
            Ok(_) => "huge pages".to_owned(),
            Err(why) => format!("small pages ({why})"),
        }
    }

    /// Seconds in which its threads found something to do: its process always burns a processor.
    pub(super) fn worked(&self) -> Result<f64, Error> {
        // A ring of this thread may break off what waits.
        let mut control = patiently(|| UnixStream::connect(&self.control))?;
        control.set_read_timeout(Some(PATIENCE)).map_err(Error::rig)?;
        let asked = br#"{"jsonrpc":"2.0","id":1,"method":"thread_get_stats"}"#;
        control.write_all(asked).map_err(Error::rig)?;
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        while answer.len() < ANSWER_MAX {
            let count = patiently(|| control.read(&mut part))?;
            answer.extend(part.iter().take(count));
            if let Ok(whole) = serde_json::from_slice::<Value>(&answer) {
                return busy_of(&whole).ok_or_else(|| Error::rig("SPDK does not tell its time"));
            }
            if count == 0 {
                break;
            }
        }
        Err(Error::rig("SPDK gives no whole answer"))
    }
}

fn patiently<T>(mut what: impl FnMut() -> io::Result<T>) -> Result<T, Error> {
    loop {
        match what() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map_err(Error::rig),
        }
    }
}

fn busy_of(answer: &Value) -> Option<f64> {
    let answer = &answer["result"];
    let threads = answer["threads"].as_array()?;
    let busy: u64 = threads.iter().filter_map(|thread| thread["busy"].as_u64()).sum();
    let ticks = answer["tick_rate"].as_u64().filter(|ticks| *ticks > 0)?;
    Some(real(busy) / real(ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_all_threads_counts() {
        let threads = serde_json::json!([{ "busy": 100 }, { "busy": 50 }]);
        let answer = serde_json::json!({ "result": { "threads": threads, "tick_rate": 100 } });
        assert_eq!(busy_of(&answer), Some(1.5));
        assert_eq!(busy_of(&serde_json::json!({ "error": "no" })), None);
    }
}
