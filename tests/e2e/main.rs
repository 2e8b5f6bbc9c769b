//! Tests of the whole: real control plane, real kernel, real binaries.
//!
//! Run them as root; `cargo test -p leasehold-lab --test e2e -- <part of a name>` selects.

#![allow(clippy::disallowed_methods, reason = "a test measures with a clock")]

mod allocation;
mod bad_input;
mod bare;
mod chaos;
mod chaos_lab;
mod chart;
mod data_path;
mod death;
mod edits;
mod examples;
mod families;
mod faults;
mod host_protection;
mod install;
mod interfaces;
mod kind_demo;
mod layer2;
mod leases;
mod links;
mod migration;
mod monitoring;
mod moves;
mod nodes;
mod old_kernel;
mod olm;
mod outage;
mod ownership;
mod page;
mod pair;
mod placement;
mod plugin;
mod policies;
mod readme;
mod records;
mod restart;
mod rights;
mod sandbox;
mod scene;
mod sharing;
mod spread;
mod tenants;
mod uninstall;
mod upgrade;
mod walk;

use std::process::ExitCode;

use leasehold_lab::{harness, trials};
use libtest_mimic::Trial;

fn main() -> ExitCode {
    let mut trials = slow();
    trials.extend(allocation::alone());
    trials.extend(elections());
    trials.extend(operation());
    harness::main(spread(allocation::turns(), trials))
}

/// Spreads what takes turns evenly among the rest: two of them at once would only wait for each other.
fn spread(turns: Vec<Trial>, rest: Vec<Trial>) -> Vec<Trial> {
    let (few, many) = (turns.len(), rest.len());
    let turns = turns.into_iter().enumerate().map(|(number, it)| ((2 * number + 1) * many, it));
    let rest = rest.into_iter().enumerate().map(|(number, it)| ((2 * number + 1) * few, it));
    let mut all: Vec<(usize, Trial)> = turns.chain(rest).collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, trial)| trial).collect()
}

/// The slowest of all rows below: they begin first, so that none runs alone at the end.
fn slow() -> Vec<Trial> {
    trials![
        chaos::an_owner_that_dies_with_the_api_server_or_without_it_is_replaced,
        monitoring::prometheus_finds_all_metrics_that_alerts_and_dashboard_name_and_no_alert_fires,
        outage::an_api_server_that_is_away_for_long_moves_nothing_and_nor_does_its_return,
        host_protection::a_port_scan_of_an_address_finds_the_ports_of_its_service_and_nothing_else,
        host_protection::a_port_scan_finds_no_more_where_kube_proxy_runs_iptables,
        readme::what_the_pages_tell_to_type_works_as_it_stands_there,
        monitoring::a_session_that_flaps_and_an_api_server_that_does_not_answer_raise_alerts,
        chaos::an_owner_that_clients_cannot_hear_is_replaced_at_once_and_yields_when_it_is_back,
        olm::the_operator_of_the_bundle_deploys_the_speakers_and_takes_them_along,
    ]
}

/// Who owns what, and what clients feel of it.
fn elections() -> Vec<Trial> {
    trials![
        bare::an_address_on_links_without_one_is_announced_and_taken_when_its_owner_dies,
        chaos::a_parted_segment_has_one_owner_again_as_soon_as_it_is_joined,
        chaos::an_owner_cut_from_the_api_server_hands_over_without_a_gap,
        chaos::two_nodes_that_die_at_once_are_both_replaced_at_once,
        chaos::a_speaker_killed_ten_times_in_a_row_keeps_what_it_has,
        chaos::a_wall_clock_that_is_set_back_and_forward_moves_nothing,
        chaos::nodes_that_never_heard_each_other_take_nothing_from_each_other,
        chaos_lab::segments_are_parted_nodes_isolated_and_their_arp_filtered,
        chaos_lab::a_slow_api_server_answers_late_and_is_quick_again_afterwards,
        data_path::bare::a_vip_that_a_node_has_is_served_by_pods_elsewhere,
        data_path::bare::a_dead_node_is_silent_and_its_neighbours_are_not,
        data_path::reach::a_service_is_reached_from_everywhere_by_nftables,
        data_path::reach::a_service_is_reached_from_everywhere_by_iptables,
        data_path::proxy::a_node_whose_kube_proxy_died_is_no_successor_and_says_so,
        data_path::proxy::a_local_service_stays_where_its_pod_ends_until_the_rules_are_where_it_begins,
        data_path::proxy::who_asked_before_there_was_a_service_is_answered_as_soon_as_its_address_is_there,
        data_path::proxy::an_address_waits_for_its_rules_where_the_tables_of_kube_proxy_are_gone,
        data_path::ipv6::an_ipv6_address_is_usable_at_once_and_never_the_source_of_what_the_node_sends,
        data_path::ipv6::ipv6_addresses_that_were_flushed_by_hand_are_back_at_once,
        data_path::ipv6::ipv6_addresses_are_back_after_the_link_was_down,
        data_path::detour::no_connection_leads_to_a_dead_node_by_nftables,
        data_path::detour::no_connection_leads_to_a_dead_node_by_iptables,
        data_path::detour::a_dead_node_is_passed_over_while_the_api_server_is_away,
        data_path::detour::where_the_policy_says_so_dead_endpoints_are_left_to_kube_proxy,
        data_path::connections::open_connections_survive_each_move_of_their_address_by_nftables,
        data_path::connections::open_connections_survive_each_move_of_their_address_by_iptables,
        data_path::connections::where_the_policy_says_so_open_connections_end_at_once,
        data_path::connections::a_drain_waits_for_the_end_of_connections_and_says_how_many_are_left,
        data_path::connections::connections_of_a_former_owner_that_dies_are_reset,
        data_path::spread::connections_through_a_spread_address_outlive_its_owners_by_nftables,
        data_path::spread::connections_through_a_spread_address_outlive_its_owners_by_iptables,
        data_path::spread::connections_through_a_spread_address_outlive_pods_that_come_and_go,
        data_path::spread::nodes_that_packets_cannot_be_spread_over_are_named,
        data_path::spread::a_network_that_drops_what_nodes_send_for_clients_is_named,
        data_path::spread::a_node_whose_answers_the_network_drops_is_left_out,
        data_path::spread::without_kube_proxy_an_owner_has_a_pod_and_spreads_nothing,
        data_path::follow::a_clients_entries_follow_both_addresses_of_a_cordoned_node,
        data_path::follow::a_clients_entries_follow_both_addresses_of_a_dead_node,
        death::a_dead_nodes_addresses_are_taken_and_it_gets_none_back,
        death::without_the_wire_a_dead_nodes_addresses_are_taken_when_its_lease_runs_out,
        death::a_node_that_was_cut_off_comes_back_and_does_not_answer_for_what_it_lost,
        death::a_speaker_that_hangs_loses_its_addresses_and_takes_none_back,
        death::an_owner_without_a_carrier_gives_up_at_once_and_gets_nothing_back,
        edits::edits_by_the_hundred_are_not_felt_move_nothing_and_are_mended_within_two_seconds,
        families::a_family_that_no_link_carries_leaves_the_other_alone_and_may_be_on_another_node,
        faults::links_are_cut_one_way_and_lose_their_carrier,
        faults::the_api_server_freezes_dies_and_comes_back_with_its_data,
        interfaces::an_address_is_not_announced_to_containers_but_where_the_default_route_leads,
        interfaces::where_the_policy_says_none_nobody_announces_and_the_service_says_why,
        layer2::a_policy_of_before_layer2_keeps_its_effect_and_moves_nothing_when_it_is_rewritten,
        leases::a_claim_that_is_deleted_or_edited_is_mended_and_nothing_moves,
        leases::a_session_that_is_deleted_or_edited_is_mended_and_nothing_moves,
        leases::a_session_that_is_ended_by_hand_moves_its_claims_once_and_nobody_notices,
        links::an_interface_that_is_renamed_carries_under_its_new_name,
        links::an_interface_that_comes_later_carries_where_the_policy_names_it,
        links::an_interface_that_comes_later_carries_the_addresses_of_its_subnet,
        links::a_node_whose_own_addresses_change_goes_on,
        links::with_strict_reverse_path_filtering_the_link_that_answers_carries,
        links::a_mac_address_that_changes_is_announced_at_once,
        leases::describing_the_lease_of_a_service_says_who_owns_it_where_and_since_when,
        moves::a_cordoned_node_hands_its_addresses_over_and_keeps_none,
        policies::the_addresses_of_a_service_are_on_different_nodes_where_the_policy_says_so,
        policies::a_policy_follows_the_labels_of_pools_and_says_what_of_it_matches_nothing,
        policies::an_address_goes_to_another_interface_of_its_owner_as_the_policy_says,
        policies::an_address_is_announced_as_often_as_the_policy_says,
        policies::what_a_deleted_policy_governed_goes_to_the_next_one_and_then_to_nobody,
        nodes::a_cordoned_node_keeps_its_addresses_until_pods_leave_it,
        nodes::a_node_that_is_not_ready_out_of_service_or_without_a_network_gives_its_addresses_away,
        nodes::a_service_without_an_endpoint_is_announced_by_nobody_and_says_so,
        moves::a_policy_or_a_label_that_excludes_the_owner_moves_its_addresses,
        moves::nodes_that_a_label_excludes_announce_where_their_speakers_pass_over_it,
        moves::a_service_with_the_local_policy_is_owned_where_its_pods_are,
        outage::speakers_reach_an_api_server_directly_where_that_of_the_service_is_dead,
        outage::a_new_authority_of_the_api_server_is_believed_without_a_restart,
        outage::where_the_policy_says_so_addresses_go_before_anybody_else_could_own_them,
        ownership::a_service_answers_from_whichever_node_owns_it,
        ownership::both_addresses_of_a_dual_stack_service_have_one_owner_and_move_together,
        ownership::an_address_that_is_removed_by_hand_is_back_at_once,
        ownership::an_address_of_a_node_itself_is_never_served_and_never_taken_away,
        ownership::an_address_that_a_stranger_has_is_not_taken_from_it,
        ownership::a_deleted_service_leaves_nothing_behind_and_its_address_serves_another,
        placement::what_a_preferred_node_had_before_it_died_goes_back_to_it_and_nobody_notices,
        placement::a_node_that_is_back_gets_its_share_where_the_policy_balances,
        records::what_tools_take_off_a_service_is_written_again_and_nobody_notices,
        records::what_tools_take_off_a_service_while_no_operator_works_is_not_missed,
        old_kernel::where_addresses_are_marked_by_metric_speakers_restart_and_die_as_elsewhere,
        restart::a_killed_speaker_that_is_started_again_goes_on_and_nobody_notices,
        restart::a_thread_that_is_stuck_is_seen_by_the_liveness_probe,
        restart::an_upgrade_of_the_owners_speaker_moves_nothing_and_breaks_no_connection,
        restart::a_reboot_without_a_drain_costs_no_more_than_a_power_cut_also_by_lease_alone,
        restart::all_speakers_are_upgraded_one_after_another_and_nothing_moves,
        sharing::services_that_share_an_address_have_one_owner_and_move_together,
        sharing::a_local_service_that_joins_an_address_interrupts_nothing,
        tenants::what_a_tenant_writes_on_his_service_does_nothing_to_the_address_of_another,
        spread::services_are_spread_evenly_and_those_of_a_dead_node_over_all_survivors,
        spread::a_speaker_that_ends_while_its_node_is_drained_leaves_nothing_behind,
    ]
}

/// What people install, configure and look at.
fn operation() -> Vec<Trial> {
    trials![
        bad_input::a_speaker_that_cannot_work_ends_and_says_why_and_no_address_is_lost,
        bad_input::a_speaker_under_the_name_of_no_node_waits_and_says_so,
        bad_input::a_speaker_without_an_api_server_waits_says_so_and_works_when_it_comes,
        bad_input::a_second_speaker_on_a_host_waits_and_takes_over_when_the_first_ends,
        bad_input::settings_of_layer_2_are_refused_with_what_to_write_in_both_shapes,
        chart::the_chart_makes_what_kustomize_builds,
        chart::what_make_alerts_writes_is_up_to_date,
        chart::release::a_release_is_installed_upgraded_and_uninstalled_and_pools_stay,
        chart::release::a_release_in_the_namespace_of_leasehold_says_how_to_label_it,
        chart::release::an_upgrade_brings_the_new_fields_of_the_definitions,
        chart::release::what_kubectl_applied_becomes_a_release_and_no_pod_changes,
        chart::schema::all_manifests_are_what_the_api_server_knows,
        chart::trial::helm_test_finds_what_stands_in_the_way,
        chart::values::each_value_does_what_it_says,
        chart::values::what_cannot_be_is_refused_by_name,
        chart::values::flags_are_those_of_the_programs,
        examples::every_example_is_accepted_by_the_api_server_and_may_be_applied_again,
        examples::every_manifest_is_accepted_by_the_api_server,
        examples::the_gitops_example_installs_and_configures_in_two_steps,
        host_protection::protection_follows_the_service_the_policy_and_the_address,
        host_protection::by_a_shared_address_the_ports_of_all_its_services_are_reached,
        install::one_command_installs_everything_and_another_takes_it_away,
        kind_demo::the_client_of_the_demo_on_kind_tells_what_it_felt,
        install::requests_on_leases_have_a_priority_level_of_their_own,
        migration::a_move_from_metallb_keeps_every_address,
        monitoring::alerts_and_dashboard_pass_the_checks_of_prometheus_and_grafana,
        monitoring::an_address_without_an_owner_and_a_pool_that_is_nearly_full_raise_alerts,
        upgrade::an_upgrade_from_the_previous_version_and_the_way_back_are_felt_by_nobody,
        uninstall::addresses_stay_after_an_uninstall_until_they_are_freed,
        olm::the_bundle_and_the_catalog_are_valid_and_what_is_planted_is_found,
        olm::an_operator_that_cannot_deploy_the_speakers_says_so_and_allocates,
        uninstall::what_was_changed_on_a_node_is_undone_when_leasehold_goes_and_not_in_an_upgrade,
        walk::a_node_has_died_and_each_place_tells_of_it,
        walk::what_is_logged_changes_while_processes_run,
        page::the_page_shows_a_failover_as_it_happens,
        page::the_page_shows_a_pool_that_runs_out,
        plugin::answers::owners_are_shown_in_every_format_and_services_are_found_by_every_name,
        plugin::answers::what_keeps_each_node_from_taking_an_address_is_explained,
        plugin::answers::a_simulation_says_what_happens_when_the_node_dies,
        plugin::answers::a_failover_is_shown_while_it_happens,
        plugin::acts::a_service_moves_to_the_node_that_it_is_told_to,
        plugin::acts::a_drained_node_owns_nothing_until_it_is_told_otherwise,
        plugin::looks::a_check_finds_pools_that_overlap_and_webhooks_on_leases,
        plugin::looks::a_dead_operator_is_seen_and_who_waits_for_it_is_counted,
        plugin::looks::an_archive_has_all_that_is_of_use_and_no_secret,
        rights::each_right_is_used_and_nothing_else_is_asked_for,
        rights::each_right_of_the_bundle_is_used_and_nothing_else_is_asked_for,
        rights::the_bundle_grants_what_the_manifests_do_and_what_deploying_takes,
        sandbox::speakers_and_operator_are_confined_as_their_manifests_say,
        sandbox::nothing_outlives_a_lab_that_is_killed,
    ]
}
