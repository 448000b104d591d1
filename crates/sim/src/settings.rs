// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mode parameters that are saved: the oracle of MODE SELECT with SP (SPC-4 §5.13).
//!
//! One session of a target changes D_SENSE of its units, always with SP, and reads it. What was
//! acknowledged is there, whatever happens to the power; what failed may be or not.

use wire::scsi::mode::Control;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// MODE SELECT of this value.
    Save(bool),
    /// MODE SENSE.
    Read,
}

/// What is known of one unit.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Values that may be there.
    values: Vec<bool>,
    acting: bool,
    /// Somebody may still change it of whom nobody will hear.
    wild: bool,
}

impl Settings {
    /// As a unit is at first.
    pub(crate) fn new() -> Self {
        Self { values: vec![false], acting: false, wild: false }
    }

    /// What to do next: `read`, or change what is there. None: something is under way.
    pub(crate) fn next(&self, read: bool) -> Option<Setting> {
        match (self.acting, read) {
            (true, _) => None,
            (false, true) => Some(Setting::Read),
            (false, false) => Some(Setting::Save(!self.values.contains(&true))),
        }
    }

    /// It is asked for.
    pub(crate) fn ask(&mut self, setting: Setting) {
        self.acting = true;
        if let Setting::Save(value) = setting {
            self.values.push(value);
        }
    }

    /// It was done.
    pub(crate) fn done(&mut self, setting: Setting, data: &[u8]) -> Result<(), String> {
        self.acting = false;
        match setting {
            Setting::Save(value) => self.values = vec![value],
            Setting::Read => {
                let page = data.get(HEADER_LEN..).and_then(Control::parse);
                let Some(page) = page else { return Err("there is no control page".to_owned()) };
                let value = page.descriptor_sense;
                if !self.wild && !self.values.contains(&value) {
                    return Err(format!("D_SENSE is {value}, which was not what was saved"));
                }
            }
        }
        Ok(())
    }

    /// It failed; `cleanly`: nothing of it is there.
    pub(crate) fn failed(&mut self, setting: Setting, cleanly: bool) {
        self.acting = false;
        if matches!(setting, Setting::Save(_)) && cleanly {
            self.values.pop();
        }
    }

    /// Nobody will hear how it ended.
    pub(crate) const fn abandon(&mut self) {
        (self.acting, self.wild) = (false, true);
    }
}

/// Header of MODE SENSE(6), without a block descriptor (SPC-4 §7.5.5).
pub(crate) const HEADER_LEN: usize = 4;

/// The list of MODE SELECT(6).
pub(crate) fn list(value: bool) -> Vec<u8> {
    let page = Control { descriptor_sense: value, task_aborted_status: true, ..Control::default() };
    [&[0; HEADER_LEN][..], &page.emit()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_there_and_what_failed_may_be() {
        let sensed = |value| list(value);
        let mut settings = Settings::new();
        settings.ask(Setting::Save(true));
        assert_eq!(settings.next(true), None, "one at a time");
        assert_eq!(settings.done(Setting::Save(true), &[]), Ok(()));
        assert!(settings.done(Setting::Read, &sensed(false)).is_err());
        assert_eq!(settings.next(false), Some(Setting::Save(false)));
        settings.ask(Setting::Save(false));
        settings.failed(Setting::Save(false), true);
        assert!(settings.done(Setting::Read, &sensed(false)).is_err());
        settings.ask(Setting::Save(false));
        settings.failed(Setting::Save(false), false);
        for value in [false, true] {
            assert_eq!(settings.done(Setting::Read, &sensed(value)), Ok(()));
        }
    }
}
