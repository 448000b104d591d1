// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image of Ceph as it is written:
//! `POOL[/NAMESPACE]/IMAGE[@SNAP][,id=USER][,conf=FILE][,keyring=FILE][,busy=TIME]
//! [,create,size=SIZE]`.

use super::Exactly;
use super::SpecError;
use super::error::RBD_USAGE;
use super::size;
use super::size::ExactTime;
use super::size::parse_time;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

/// An image of Ceph to be opened as a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdSpec {
    /// The pool; not empty.
    pub pool: String,
    /// A namespace of the pool; not empty.
    pub namespace: Option<String>,
    /// The image; not empty.
    pub image: String,
    /// The snapshot to serve, read only; None: the image itself.
    pub snapshot: Option<String>,
    /// The user, without `client.`; None: `admin`.
    pub user: Option<String>,
    /// Ceph's configuration; None: where Ceph looks for it.
    pub conf: Option<String>,
    /// The file of the user's key; None: where the configuration says.
    pub keyring: Option<String>,
    /// Hosts are told BUSY when the cluster has not answered for so long; None: the usual time.
    pub busy: Option<Duration>,
    /// The image is made if it is missing.
    pub create: bool,
    /// Size in bytes of an image that is made, a multiple of 512.
    pub size: Option<u64>,
}

impl RbdSpec {
    /// What stands before the first comma.
    pub(super) fn new(place: &str) -> Result<Self, SpecError> {
        let wrong = || SpecError::Image { place: place.to_owned(), usage: RBD_USAGE };
        let (place_of_image, snapshot) = match place.split_once('@') {
            Some((image, snapshot)) => (image, Some(snapshot)),
            None => (place, None),
        };
        let mut parts = place_of_image.split('/');
        let pool = parts.next().ok_or_else(wrong)?;
        let second = parts.next().ok_or_else(wrong)?;
        let (namespace, image) = match parts.next() {
            Some(image) => (Some(second), image),
            None => (None, second),
        };
        // Ceph gives none of these names to anything.
        let is_name = |name: &str| !name.is_empty() && !name.contains(['@', '/', '\0']);
        let names = [Some(pool), namespace, Some(image), snapshot];
        if parts.next().is_some() || !names.iter().flatten().all(|name| is_name(name)) {
            return Err(wrong());
        }
        Ok(Self {
            pool: pool.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            image: image.to_owned(),
            snapshot: snapshot.map(ToOwned::to_owned),
            user: None,
            conf: None,
            keyring: None,
            busy: None,
            create: false,
            size: None,
        })
    }

    /// Takes an option that images have; false if they have it not.
    pub(super) fn take(&mut self, option: &str, value: Option<&str>) -> Result<bool, SpecError> {
        let kind = "rbd";
        let text = |option: &'static str, right: &'static str| match value {
            Some(value) if !value.is_empty() && !value.contains('\0') => Ok(value.to_owned()),
            _ => {
                let value = value.unwrap_or_default().to_owned();
                Err(SpecError::FilterValue { kind, option, value, right })
            }
        };
        let (option, slot, right) = match option {
            "id" => ("id", &mut self.user, "a user without `client.`, such as id=lunwire"),
            "conf" => ("conf", &mut self.conf, "a file, such as conf=/etc/ceph/ceph.conf"),
            "keyring" => {
                let right = "a file, such as keyring=/etc/ceph/ceph.client.lunwire.keyring";
                ("keyring", &mut self.keyring, right)
            }
            "busy" if self.busy.is_some() => {
                return Err(SpecError::Repeated { kind, option: "busy" });
            }
            "busy" => {
                let (text, right) = (value.unwrap_or_default(), "a time up to 60s, such as 30s");
                self.busy = Some(parse_time(text).ok_or_else(|| SpecError::FilterValue {
                    kind,
                    option: "busy",
                    value: text.to_owned(),
                    right,
                })?);
                return Ok(true);
            }
            "size" if self.size.is_some() => {
                return Err(SpecError::Repeated { kind, option: "size" });
            }
            "size" => {
                self.size = Some(size(kind, "option `size`", value.unwrap_or_default())?);
                return Ok(true);
            }
            "create" if self.create => return Err(SpecError::Repeated { kind, option: "create" }),
            "create" => {
                if let Some(value) = value {
                    let (option, value) = ("create", value.to_owned());
                    return Err(SpecError::ValueNotWanted { kind, option, value });
                }
                self.create = true;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        if let (Some(user), "id") = (value.and_then(|value| value.strip_prefix("client.")), option)
        {
            return Err(SpecError::RbdUser { user: user.to_owned() });
        }
        if slot.is_some() {
            return Err(SpecError::Repeated { kind, option });
        }
        *slot = Some(text(option, right)?);
        Ok(true)
    }

    /// What can only be said of all options together.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        match (self.create, self.size, &self.snapshot) {
            (true, _, Some(_)) => Err(SpecError::CreateSnapshot),
            (false, None, _) | (true, Some(_), None) => Ok(()),
            (true, None, None) | (false, Some(_), _) => Err(SpecError::CreateAndSize),
        }
    }

    /// Where the image is: `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
    pub fn place(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            write!(f, "{}/", self.pool)?;
            if let Some(namespace) = &self.namespace {
                write!(f, "{namespace}/")?;
            }
            f.write_str(&self.image)?;
            self.snapshot.iter().try_for_each(|snapshot| write!(f, "@{snapshot}"))
        })
    }
}

impl fmt::Display for RbdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place())?;
        for (name, value) in [("id", &self.user), ("conf", &self.conf), ("keyring", &self.keyring)]
        {
            value.iter().try_for_each(|value| write!(f, ",{name}={value}"))?;
        }
        self.busy.iter().try_for_each(|time| write!(f, ",busy={}", ExactTime(*time)))?;
        if self.create {
            f.write_str(",create")?;
        }
        self.size.iter().try_for_each(|size| write!(f, ",size={}", Exactly(*size)))
    }
}
