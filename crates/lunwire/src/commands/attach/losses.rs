// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said of a session that is lost, and of the tries to get it back: each cause once.

use initiator::DiskEvent;

/// Causes that are told of one loss.
const CAUSES_MAX: usize = 4;

/// What was said since there was a session last.
#[derive(Debug, Default)]
pub(super) struct Losses {
    said: Vec<String>,
}

impl Losses {
    /// Whether an event tells people anything that they have not been told.
    pub(super) fn is_news(&mut self, event: &DiskEvent) -> bool {
        match event {
            DiskEvent::Lost(error) => {
                let cause = error.to_string();
                let is_news = self.said.len() < CAUSES_MAX && !self.said.contains(&cause);
                if is_news {
                    self.said.push(cause);
                }
                is_news
            }
            DiskEvent::Back => {
                self.said.clear();
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use initiator::Error;
    use std::io::ErrorKind;

    use super::*;

    fn lost(why: &str) -> DiskEvent {
        DiskEvent::Lost(Error::from(std::io::Error::new(ErrorKind::ConnectionRefused, why)))
    }

    #[test]
    fn each_cause_of_a_loss_is_told_once() {
        let mut losses = Losses::default();
        assert!(losses.is_news(&lost("closed")));
        for _ in 0..100 {
            losses.is_news(&lost("refused"));
            assert!(!losses.is_news(&lost("refused")) && !losses.is_news(&lost("closed")));
        }
        assert!(losses.is_news(&DiskEvent::Back) && losses.is_news(&lost("refused")));
        let told = (0..100).filter(|number| losses.is_news(&lost(&number.to_string())));
        assert_eq!(told.count(), CAUSES_MAX - 1);
        assert!(losses.is_news(&DiskEvent::Back));
    }
}
