//! Announcement by ARP and NDP.
//!
//! | module | what |
//! |---|---|
//! | [`schedule`] | when each address is announced; pure |
//! | [`announcer`] | the task that has the announcements sent |
//! | [`confine`] | ARP settings of links, and how they were |

pub mod announcer;
pub mod confine;
pub mod schedule;
