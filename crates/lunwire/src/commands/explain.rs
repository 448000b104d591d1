// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire explain`.

mod iser;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use anyhow::anyhow;
use control::units;
use serde_json::Value;
use serde_json::json;

use crate::args::ExplainOptions;
use crate::output;
use crate::plan::Described;
use crate::plan::Draft;
use crate::plan::Wish;

use self::iser::Looked;
use self::iser::TRANSPORT;

/// Where Ceph looks first.
const CONF: &str = "/etc/ceph/ceph.conf";

/// What this machine offers, what would be chosen, and why.
pub(crate) fn run(options: &ExplainOptions) -> Result<()> {
    let report = engine::probe();
    let chosen = report.choice.name();
    let uring = match &report.uring {
        Ok(features) => (*features).to_owned(),
        Err(refusal) => refusal.to_string(),
    };
    let cpus = engine::affinity::allowed_cpus();
    let url = options.place.as_deref().and_then(Path::to_str).and_then(iser::url);
    let draft = match (&options.place, &url) {
        (Some(file), None) => {
            let (draft, wrong) = Draft::from_file(file)?;
            if let Some(error) = wrong.into_iter().next() {
                return Err(error);
            }
            Some(draft)
        }
        _ => None,
    };
    let images = draft.as_ref().map(Draft::describe_images).unwrap_or_default();
    let iser = Looked::at(draft.as_ref().map(Draft::describe_iser).unwrap_or_default());
    let way = url.transpose()?.map(|url| iser::way(&url));
    let failed = images.iter().filter(|image| image.seen.is_err()).count() as u64;
    // Who is told of images that cannot be served hears so by the exit status, as of `check`.
    let failed = (failed > 0).then(|| {
        let images = control::words::count(failed, "image");
        anyhow!("{images} cannot be served as described")
    });
    let ceph = rbd::libraries();
    let frames = engine::packet::PacketSocket::examine();
    let ways: Vec<_> = draft.iter().flat_map(frames_ways).collect();
    let sandbox = sandbox::offered();
    if options.json {
        let told = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": report.kernel,
            "engine": chosen,
            "uring": uring,
            "crc32c": crc::tier().name(),
            "cpus": cpus,
            "mode": "smp",
            "amp": amp(cpus.len()),
            "ceph": match &ceph {
                Ok(libraries) => libraries.iter().map(library_json).collect(),
                Err(error) => json!({ "error": error.to_string() }),
            },
            "transports": ["tcp", "iser", "ether"],
            "ether": match &frames {
                Ok(()) => json!({ "frames": ways.iter().cloned().collect::<BTreeMap<_, _>>() }),
                Err(error) => json!({ "error": error.to_string() }),
            },
            "sandbox": {
                "seccomp": sandbox.calls,
                "landlock": sandbox.landlock,
                "wish": draft.as_ref().map_or("auto", |draft| draft.sandbox.name()),
            },
            "iser": iser.json(),
            "url": way.as_ref().map(iser::Way::json),
            "rdma": iser::adapters_json(&verbs::devices()),
            "images": images.iter().map(image_json).collect::<Vec<Value>>(),
        });
        output::measured(failed.as_ref(), told);
        return failed.map_or(Ok(()), Err);
    }
    let ceph = match &ceph {
        Ok(libraries) => libraries.iter().map(library).collect::<Vec<_>>().join(", "),
        Err(rbd::LibraryError::Missing { file, .. }) => {
            let name = file.split('.').next().unwrap_or_default();
            format!("{name} is missing: install package librbd1 (for rbd: alone)")
        }
        Err(rbd::LibraryError::Broken { file, said, .. }) => {
            format!("{file} cannot be loaded: {said} (for rbd: alone)")
        }
        Err(error) => error.to_string(),
    };
    let mut rows = vec![
        vec!["version".into(), env!("CARGO_PKG_VERSION").into()],
        vec!["kernel".into(), report.kernel.clone()],
        vec!["engine".into(), format!("{chosen} (io_uring: {})", uring)],
        vec!["CRC32C".into(), crc::tier().name().into()],
        vec!["CPUs".into(), format!("{} allowed: {cpus:?}", cpus.len())],
        vec!["mode".into(), format!("smp; {}", amp(cpus.len()))],
        vec!["transport".into(), TRANSPORT.into()],
        vec!["iSER".into(), iser::provided()],
        vec!["RDMA adapters".into(), iser::adapters(&verbs::devices())],
        vec![
            "raw Ethernet".into(),
            match &frames {
                Ok(()) => {
                    let past = match engine::xdp::XdpSocket::examine() {
                        Ok(()) => "; frames=xdp".into(),
                        Err(error) => format!("; no frames=xdp: {error}"),
                    };
                    format!("serve --ether INTERFACE, ether://MAC%INTERFACE/...{past}")
                }
                Err(error) => match target::frames_advice(error) {
                    Some(advice) => format!("{error}: {advice}"),
                    None => error.to_string(),
                },
            },
        ],
        vec!["iSER digests".into(), iser::DIGESTS.into()],
        vec!["Ceph".into(), ceph],
        vec!["sandbox".into(), sandbox_row(&sandbox, draft.as_ref())],
    ];
    rows.extend(iser.rows());
    let way_row = |(name, way): (String, String)| vec![format!("frames at {name}"), way];
    rows.extend(ways.into_iter().map(way_row));
    rows.extend(way.map(|way| way.row()));
    rows.extend(images.iter().map(image_row));
    output::table(&rows);
    failed.map_or(Ok(()), Err)
}

/// Which way frames would go at interfaces that are left to us, as far as these tell it.
fn frames_ways(draft: &Draft) -> impl Iterator<Item = (String, String)> {
    let chosen = draft.ether.iter().filter(|interface| interface.way == target::Way::Auto);
    chosen.map(|interface| {
        let way = match target::why_not_xdp(&interface.name) {
            Some(why) => format!("packet, not xdp: {why}"),
            None => "xdp, where the driver has what it takes; serve says".to_owned(),
        };
        (interface.name.clone(), way)
    })
}

/// What a daemon would give up, and by what.
fn sandbox_row(offered: &sandbox::Offered, draft: Option<&Draft>) -> String {
    let calls = if offered.calls { "seccomp" } else { "no seccomp" };
    let files = match offered.landlock {
        Some(version) => format!("landlock {version}"),
        None => "no landlock (lsm= of the kernel's command line)".into(),
    };
    let wish = draft.map_or(Wish::Auto, |draft| draft.sandbox);
    let given_up = match wish {
        Wish::Auto => "programs and administration; --sandbox=yes: files and ports, too",
        Wish::Yes => "programs, administration, files and ports",
        Wish::No => "nothing",
    };
    format!("{} gives up {given_up} ({calls}, {files})", wish.name())
}

fn library(loaded: &rbd::Loaded) -> String {
    let rbd::Loaded { name, version, file, .. } = loaded;
    let file = file.as_deref().map(|file| format!(" ({file})")).unwrap_or_default();
    format!("{name} {version}{file}")
}

fn library_json(loaded: &rbd::Loaded) -> (String, Value) {
    let rbd::Loaded { name, version, file, .. } = loaded;
    ((*name).to_owned(), json!({ "version": version, "file": file }))
}

fn user(image: &Described) -> String {
    format!("client.{}", image.image.user.as_deref().unwrap_or("admin"))
}

/// The configuration that is read for an image.
fn conf(image: &Described) -> String {
    let named = image.image.conf.clone().or_else(|| std::env::var("CEPH_CONF").ok());
    named.unwrap_or_else(|| CONF.to_owned())
}

fn image_row(of: &Described) -> Vec<String> {
    let place = format!("LUN {} of {}", of.lun, of.target);
    let what = match &of.seen {
        Ok(seen) => {
            let size = units::bytes(seen.bytes);
            match &seen.made_of {
                None => format!("{size}, would be made"),
                Some(made_of) => format!(
                    "{size} in objects of {}, features {}, cache {}",
                    units::bytes(made_of.object_bytes),
                    made_of.features.join(" "),
                    made_of.cache
                ),
            }
        }
        Err(error) => output::masked(&output::chain(error)),
    };
    let (image, user, conf) = (of.image.place(), user(of), conf(of));
    vec![place, format!("rbd:{image} as {user} by {conf}: {what}")]
}

fn image_json(of: &Described) -> Value {
    let image = &of.image;
    let seen = of.seen.as_ref().ok();
    let made_of = seen.and_then(|seen| seen.made_of.as_ref());
    json!({
        "target": of.target,
        "lun": of.lun,
        "user": user(of),
        "conf": conf(of),
        "pool": image.pool,
        "namespace": image.namespace,
        "image": image.image,
        "snapshot": image.snapshot,
        "bytes": seen.map(|seen| seen.bytes),
        "object_bytes": made_of.map(|made_of| made_of.object_bytes),
        "features": made_of.map(|made_of| &made_of.features),
        "cache": made_of.map(|made_of| made_of.cache),
        "error": of.seen.as_ref().err().map(|error| output::masked(&output::chain(error))),
    })
}

/// When `--mode amp` pays. More reactors are the better use of CPUs as long as there are sessions
/// for them: a polling core adds a hand-over to each command, and takes the work on sockets, which
/// is most of it, from one reactor.
fn amp(cpus: usize) -> &'static str {
    match cpus {
        0..=2 => {
            "--mode amp does not pay with fewer than 3 CPUs: its polling core needs one for itself"
        }
        _ => {
            "--mode amp pays where one session keeps one reactor busy and CPUs are idle: a polling \
             core takes the work on sockets from it; for many sessions --reactors is better"
        }
    }
}
