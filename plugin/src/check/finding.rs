//! Findings, and reads that may be refused.

use serde::Serialize;

use crate::error::PluginError;

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The name of the check.
    pub(super) check: &'static str,
    /// The severity.
    pub(super) level: Level,
    /// The finding in words.
    pub(super) message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

/// The severity of a finding; the worst comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Level {
    /// All is well.
    Ok,
    /// It could not be looked at.
    Skipped,
    /// Worth a look.
    Warn,
    /// It keeps Leasehold from working.
    Fail,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), fix: None }
    }

    pub(super) fn skipped(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Skipped, message: message.into(), fix: None }
    }

    pub(super) fn warn(
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Warn, message: message.into(), fix: Some(fix.into()) }
    }

    pub(super) fn fail(
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Fail, message: message.into(), fix: Some(fix.into()) }
    }
}

/// The result of a read, or the reason for which this user may not read. Other errors stay errors.
pub(super) fn skip<T>(read: Result<T, PluginError>) -> Result<Result<T, String>, PluginError> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(error @ PluginError::Refused { code: 401 | 403, .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The objects of a list; none of a kind that the API server does not know.
pub(super) fn or_none<T>(read: Result<Vec<T>, PluginError>) -> Result<Vec<T>, PluginError> {
    match read {
        Err(PluginError::Refused { code: 404, .. }) => Ok(Vec::new()),
        read => read,
    }
}
