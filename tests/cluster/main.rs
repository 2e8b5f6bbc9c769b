//! Tests on machines: real kubelets, containerd, and the images and manifests that are released.
//!
//! `make test-cluster` builds what they need and runs them; `FILTER=<part of a name>` selects.

#![allow(clippy::disallowed_methods, reason = "a test measures with a clock")]

mod confinement;
mod families;
mod install;
mod maintenance;
mod membership;
mod memory;
mod policies;
mod power;
mod pressure;
mod shutdown;
mod trouble;
mod upgrade;

use std::process::ExitCode;

use leasehold_lab::{harness, trials};

fn main() -> ExitCode {
    // Each has three machines of its own.
    harness::main_with_threads(
        1,
        trials![
            confinement::containers_have_the_rights_of_their_manifests_and_no_others,
            families::both_addresses_of_a_service_answer_and_move_when_the_power_is_cut,
            install::the_chart_installs_pods_that_serve_and_takes_them_away,
            install::the_bundle_installs_an_operator_that_deploys_speakers,
            maintenance::a_rollout_of_speakers_and_operators_fails_no_connection,
            maintenance::a_drain_that_heeds_a_disruption_budget_fails_no_connection,
            maintenance::kubelet_and_containerd_restart_without_a_failed_connection,
            membership::a_node_that_joins_gets_a_speaker_and_may_own,
            membership::a_node_that_comes_back_with_another_address_may_own,
            membership::a_node_whose_object_is_deleted_gives_its_address_up_and_can_come_back,
            membership::an_uninstallation_with_a_dead_node_leaves_no_address_behind,
            policies::the_operator_works_under_default_deny_with_the_policy_of_the_manifests,
            policies::a_policy_on_the_pods_of_a_service_tells_clients_by_their_addresses,
            memory::many_services_of_leasehold_fit_its_memory_limits,
            memory::a_large_cluster_around_leasehold_fits_its_memory_limits,
            power::an_owner_whose_power_is_cut_is_replaced_and_comes_back,
            power::an_owner_whose_processes_hang_or_whose_cable_is_pulled_is_replaced,
            pressure::a_node_without_memory_evicts_the_pod_that_eats_it_and_no_speaker,
            shutdown::an_owner_that_is_shut_down_gracefully_hands_over_without_a_failed_connection,
            trouble::a_taint_evicts_the_pods_of_a_service_and_no_speaker,
            trouble::a_speaker_that_cannot_start_halts_the_rollout_and_one_that_can_ends_it,
            trouble::a_speaker_on_a_node_without_idle_time_is_not_restarted,
            upgrade::an_upgrade_from_the_previous_version_fails_no_connection,
        ],
    )
}
