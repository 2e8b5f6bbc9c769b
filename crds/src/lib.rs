//! The API of Leasehold: the custom resources `IPAddressPool` and `AnnouncementPolicy`, and what
//! the speaker and the operator write into Leases and Services.
//!
//! | module | what |
//! |---|---|
//! | [`addresses`] | a set of a few addresses |
//! | [`pool`] | `IPAddressPool` |
//! | [`policy`] | `AnnouncementPolicy`, and which policy governs a service |
//! | [`selector`] | label selectors, and what is wrong with those that cannot be read |
//! | [`range`] | address ranges as pools write them |
//! | [`service`] | the load balancer class, annotations and requests on Services |
//! | [`event`] | the reasons of events |
//! | [`annotation`] | the form in which annotations, labels and conditions are declared |
//! | [`label`] | the labels that are read |
//! | [`generated`] | the definitions as YAML |
//! | [`lease`] | sessions and claims as `coordination.k8s.io/v1` Leases |
//! | [`names`] | parsed names |

pub mod addresses;
pub mod annotation;
pub mod event;
pub mod generated;
pub mod label;
pub mod lease;
pub mod names;
pub mod policy;
pub mod pool;
pub mod range;
pub mod selector;
pub mod service;

pub use policy::AnnouncementPolicy;
pub use pool::IPAddressPool;

/// The API group of the custom resources, and the prefix of our annotations and labels.
pub const GROUP: &str = "leasehold.dev";
