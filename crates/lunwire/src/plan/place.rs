// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What paths name: those of a configuration file count from its folder, wherever a daemon is
//! started, those of the command line from where it is given.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use control::config::Source;
use store::spec::Spec;

use crate::args::ServeOptions;
use crate::args::Usage;
use crate::client::place::STANDARD;

/// The folder of a configuration file; none for what comes through a pipe, and so has none.
pub(crate) fn folder_of(path: &Path) -> Option<PathBuf> {
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    let whole = std::path::absolute(path).ok().filter(|_| is_file)?;
    // Without `..` in what is shown.
    whole.parent()?.canonicalize().ok()
}

/// What the path `text` of a configuration file names; the error says what to write.
pub(crate) fn of_file(source: &Source, text: &str) -> Result<String, String> {
    let Some(folder) = source.folder() else { return Ok(text.to_owned()) };
    let path = folder.join(text);
    // Empty: an error of its own.
    if text.is_empty() || Path::new(text).is_absolute() {
        return Ok(text.to_owned());
    }
    if path.symlink_metadata().is_err() && Path::new(text).symlink_metadata().is_ok() {
        let (here, folder) = (std::path::absolute(text), folder.display());
        let here = here.unwrap_or_default();
        return Err(format!(
            "paths count from the folder of the configuration file, and {text} is not in {folder}, \
             but where the command was given; try: {}",
            here.display()
        ));
    }
    whole(&path).map_err(|error| error.to_string())
}

/// The store `word` of a configuration file with what its paths name.
pub(super) fn store_of_file(source: &Source, word: &str) -> Result<String, String> {
    let mut spec = word.parse::<Spec>().map_err(|error| error.to_string())?;
    let given = spec.clone();
    each_path(&mut spec, &mut |path| {
        *path = of_file(source, path)?;
        Ok::<(), String>(())
    })?;
    Ok(if spec == given { word.to_owned() } else { spec.to_string() })
}

/// The store with its paths made absolute: a daemon may have been started elsewhere
/// than who asks it.
pub(crate) fn absolute(word: &str) -> Result<String> {
    let mut spec = word.parse::<Spec>().map_err(|error| Usage(format!("STORE {word}: {error}")))?;
    let given = spec.clone();
    each_path(&mut spec, &mut |path| {
        *path = whole(Path::new(&*path))?;
        anyhow::Ok(())
    })?;
    Ok(if spec == given { word.to_owned() } else { spec.to_string() })
}

/// The options with whole paths: who is told of one may be in another folder than the daemon. What
/// names no file of secrets or of tokens stays as it is, for it may be the secret itself.
pub(crate) fn whole_options(options: &ServeOptions) -> ServeOptions {
    let mut options = options.clone();
    let ServeOptions {
        config,
        capture,
        state_dir,
        control_socket,
        http_certificate,
        http_key,
        http_token_file,
        chap_secret_file,
        mutual_secret_file,
        lun,
        ..
    } = &mut options;
    for path in [config, state_dir, control_socket, http_certificate, http_key] {
        name_whole(path);
    }
    // The name of a stream stays one, and is refused.
    if capture.as_deref() != Some(Path::new(STANDARD)) {
        name_whole(capture);
    }
    if http_token_file.as_ref().is_some_and(|path| path.symlink_metadata().is_ok()) {
        name_whole(http_token_file);
    }
    for path in [chap_secret_file, mutual_secret_file].into_iter().flatten() {
        if Path::new(path).symlink_metadata().is_ok() {
            *path = whole(Path::new(path)).unwrap_or_else(|_| path.clone());
        }
    }
    for store in lun {
        // What is wrong with it is told as it was given.
        *store = absolute(store).unwrap_or_else(|_| store.clone());
    }
    options
}

fn name_whole(path: &mut Option<PathBuf>) {
    if let Some(path) = path {
        *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
    }
}

fn whole(path: &Path) -> Result<String> {
    let whole = std::path::absolute(path);
    let whole = whole.with_context(|| format!("cannot name {}", path.display()))?;
    let text = whole.to_str();
    text.map(str::to_owned).with_context(|| format!("the name of {} must be UTF-8", path.display()))
}

/// All paths of a store.
fn each_path<E>(
    spec: &mut Spec,
    change: &mut impl FnMut(&mut String) -> Result<(), E>,
) -> Result<(), E> {
    match spec {
        Spec::File(file) => change(&mut file.path),
        Spec::Iso { path } => change(path),
        Spec::Scsi(device) => change(&mut device.path),
        Spec::Stripe { stores, .. } => {
            stores.iter_mut().try_for_each(|store| each_path(store, change))
        }
        Spec::Filtered { behind, .. } => each_path(behind, change),
        Spec::Rbd(image) => {
            let files = [&mut image.conf, &mut image.keyring];
            files.into_iter().flatten().try_for_each(change)
        }
        Spec::Remote(disk) => {
            let files = [&mut disk.secret_file, &mut disk.mutual_secret_file];
            files.into_iter().flatten().try_for_each(change)
        }
        Spec::Memory { .. } | Spec::Null { .. } => Ok(()),
    }
}
