//! SCSI layouts.
