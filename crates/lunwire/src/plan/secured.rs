// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS of the port for HTTP, and whether the port may be where it is to be.

use std::fs::Metadata;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::config::Config;
use control::config::Source;
use http::Access;
use http::Tls;
use http::TlsFiles;
use http::Tokens;
use toml::Spanned;

use super::Draft;
use super::check::checked;
use super::document::Wrong;
use super::place;
use crate::args::ServeOptions;
use crate::args::Usage;
use crate::output;

/// Where certificate and key are, and what is in there.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpTls {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    shown: Option<Tls>,
    /// What the files were when they were read.
    read: Vec<(PathBuf, Option<Metadata>)>,
    /// Where a file says at which address HTTP is spoken, unless the command line says it.
    said: Option<(Source, Spanned<String>)>,
}

impl HttpTls {
    #[cfg(test)]
    pub(super) fn at(certificate: &str, key: &str) -> Self {
        Self { certificate: Some(certificate.into()), key: Some(key.into()), ..Self::default() }
    }

    pub(super) fn take_config(&mut self, source: &Source, config: &Config, wrong: &mut Wrong) {
        let mut path = |field: &str, value: &Option<Spanned<String>>| {
            let value = value.as_ref()?;
            let named = checked(source, field, value, |text| place::of_file(source, text));
            wrong.take(named).map(PathBuf::from)
        };
        self.said = config.http.clone().map(|value| (source.clone(), value));
        self.certificate = path("http-certificate", &config.http_certificate);
        self.key = path("http-key", &config.http_key);
    }

    pub(super) fn take_options(&mut self, options: &ServeOptions) {
        if options.http.is_some() {
            self.said = None;
        }
        let ServeOptions { http_certificate, http_key, .. } = options;
        for (ours, given) in [(&mut self.certificate, http_certificate), (&mut self.key, http_key)]
        {
            if given.is_some() {
                ours.clone_from(given);
            }
        }
    }

    /// The files that are read again at a reload.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key].into_iter().filter_map(|path| path.as_deref())
    }

    /// What they were when they were read; None: one was not there.
    pub(super) fn facts_as_read(&self) -> &[(PathBuf, Option<Metadata>)] {
        &self.read
    }

    /// Whether both name the same files: of the certificate, and of the key.
    pub(super) fn names(&self, other: &Self) -> [bool; 2] {
        [self.certificate == other.certificate, self.key == other.key]
    }

    /// Whether both were read with the same certificate in their files; one that was not read is
    /// none of another content.
    pub(super) fn shows_what(&self, other: &Self) -> bool {
        match (&self.shown, &other.shown) {
            (Some(one), Some(other)) => one.shows_what(other),
            _ => true,
        }
    }

    /// What is to be told of it.
    pub(super) fn warning(&self) -> Option<String> {
        let end = self.shown.as_ref()?.end()?;
        (end < SystemTime::now()).then(|| {
            "the certificate of HTTP (http-certificate) has expired, and clients refuse it; try: \
             another one in its file, and lunwire reload"
                .into()
        })
    }

    /// Shows from now on what was read for `by`, which then is this one.
    pub(crate) fn renew(&self, by: &mut Self) {
        if let (Some(shown), Some(new)) = (&self.shown, &mut by.shown) {
            shown.renew(new);
            *new = shown.clone();
        }
    }
}

/// What is wrong with the port is so by the command line, if that has a word of it.
pub(super) fn blamed(options: &ServeOptions, error: anyhow::Error) -> anyhow::Error {
    let ServeOptions { http, http_certificate, http_key, .. } = options;
    match http.is_some() || http_certificate.is_some() || http_key.is_some() {
        true => Usage(output::chain(&error)).into(),
        false => error,
    }
}

impl Draft {
    /// Reads certificate and key. Tokens are read whenever somebody shows one.
    pub(super) fn take_tls(&mut self) -> Result<()> {
        let tls = &mut self.http_tls;
        // Before: what changes meanwhile is found to be other than that.
        let facts = |path: &Path| (path.to_owned(), std::fs::metadata(path).ok());
        tls.read = tls.files().map(facts).collect();
        self.tokens_as_read = self.http_tokens.as_deref().map(facts);
        tls.shown = match (tls.certificate.clone(), tls.key.clone()) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let shown = Tls::load(&TlsFiles { certificate, key });
                Some(shown.context("http-certificate, http-key (--http-certificate, --http-key)")?)
            }
            (Some(_), None) => bail!("http-certificate: http-key (--http-key) is missing"),
            (None, Some(_)) => bail!("http-key: http-certificate (--http-certificate) is missing"),
        };
        let Some(address) = self.http else { return Ok(()) };
        let access = self.http_access()?;
        access.check(address).map_err(|error| match &self.http_tls.said {
            Some((source, value)) => source.error("http", value, error).into(),
            None => anyhow!("--http {address}: {error}"),
        })
    }

    /// What is said of HTTP where none is spoken.
    pub(super) fn idle_http(&self) -> Option<String> {
        let tokens = self.http_tokens.is_some().then_some("http-token-file");
        let key = self.http_tls.key.is_some().then_some("http-key");
        let name = tokens.or(key).filter(|_| self.http.is_none())?;
        Some(format!(
            "{name} (--{name}) is for HTTP, and none is spoken; try: http (--http), such as \
             127.0.0.1:9260"
        ))
    }

    /// Who is let in over HTTP.
    pub(crate) fn http_access(&self) -> Result<Access> {
        let tokens = self.http_tokens.as_deref().map(Tokens::of).transpose()?;
        Ok(Access { tokens, tls: self.http_tls.shown.clone() })
    }
}
