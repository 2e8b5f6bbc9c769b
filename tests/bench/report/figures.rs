//! The README's pictures.

use std::ops::Range;

use anyhow::{Context, Result};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use super::Results;
use super::tables::{series, steps, title};
use crate::record::Spread;
use crate::service::{Fault, Trial, system_title};

const WIDTH: u32 = 900;
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const THEIRS: RGBColor = RGBColor(0xc4, 0x5a, 0x11);
const GREY: RGBColor = RGBColor(0x88, 0x88, 0x88);
const STEPS: [RGBColor; 7] = [
    RGBColor(0x9e, 0xca, 0xe1),
    RGBColor(0x1f, 0x6f, 0xb4),
    RGBColor(0x74, 0xc4, 0x76),
    RGBColor(0x23, 0x8b, 0x45),
    RGBColor(0xfd, 0xae, 0x6b),
    RGBColor(0xc4, 0x5a, 0x11),
    RGBColor(0x75, 0x6b, 0xb1),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Each with its file's name.
pub(super) fn all(results: &Results) -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("failover.svg", failover(results)?),
        ("phases.svg", phases(results)?),
        ("service.svg", service(&results.service)?),
        (
            "requests.svg",
            lines(results, "requests to the API server per second", |it| {
                it.requests.values().sum()
            })?,
        ),
        (
            "memory.svg",
            lines(results, "resident memory of the largest speaker, MiB", |it| it.speaker_mib)?,
        ),
    ])
}

fn drawn(height: u32, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    // One element a line already; some end in blanks.
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    Ok(lines.join("\n") + "\n")
}

fn text(size: i32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

/// Outages of each fault: a dot for each run, a bar at the median.
fn failover(results: &Results) -> Result<String> {
    let all: Vec<_> = series(results.failovers())
        .into_iter()
        .filter(|it| it.runs.iter().any(|run| run.felt.outage_ms > 0.0))
        .collect();
    let most = all.iter().flat_map(|it| &it.runs).map(|run| run.felt.outage_ms).fold(1.0, f64::max);
    let height = 70 + 26 * u32::try_from(all.len())?;
    drawn(height, |area| {
        let (left, right, top) = (410, 880, 40);
        let at = |ms: f64| -> Result<i32> {
            let share = (ms.max(1.0).ln() / most.max(10.0).ln()).clamp(0.0, 1.0);
            Ok(left + rounded(f64::from(right - left) * share)?)
        };
        area.draw(&Text::new("how long a client got no answer, ms (logarithmic); a dot for each run, a line at the median", (10, 8), text(14, BLACK)))?;
        let bottom = i32::try_from(height)? - 22;
        for mark in [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0] {
            if mark <= most * 1.5 {
                let x = at(mark)?;
                area.draw(&PathElement::new(vec![(x, top - 6), (x, bottom)], GREY.mix(0.3)))?;
                area.draw(&Text::new(format!("{mark:.0}"), (x - 8, bottom + 4), text(12, GREY)))?;
            }
        }
        for (row, series) in all.iter().enumerate() {
            let y = top + 26 * i32::try_from(row)? + 8;
            let color = if series.system.starts_with("leasehold") { OURS } else { THEIRS };
            let name = format!("{}: {}", short(title(&series.fault)), series.system);
            area.draw(&Text::new(name, (10, y - 6), text(13, color)))?;
            for run in &series.runs {
                area.draw(&Circle::new((at(run.felt.outage_ms)?, y), 3, color.mix(0.4).filled()))?;
            }
            let median = at(series.spread(|felt| felt.outage_ms)?.median)?;
            area.draw(&PathElement::new(
                vec![(median, y - 9), (median, y + 9)],
                color.stroke_width(3),
            ))?;
        }
        Ok(())
    })
}

/// The first clause.
fn short(title: &str) -> &str {
    title.split([',', ';']).next().unwrap_or(title)
}

/// The medians of the steps of a failover, one after another.
fn phases(results: &Results) -> Result<String> {
    let mut medians = Vec::new();
    for (step, values) in steps(results) {
        let spread = Spread::of(values.into_iter()).context("no failover has phases")?;
        medians.push((step, spread.median));
    }
    let sum: f64 = medians.iter().map(|(_, median)| median).sum();
    drawn(40 + 60 + 22 * 7, |area| {
        area.draw(&Text::new(
            "owner's node dead: the medians of the steps, ms",
            (10, 8),
            text(14, BLACK),
        ))?;
        let mut before = 0.0;
        for (number, ((step, median), color)) in medians.iter().zip(STEPS).enumerate() {
            let at = |ms: f64| rounded(10.0 + 870.0 * ms / sum);
            let (from, to) = (at(before)?, at(before + median)?);
            area.draw(&Rectangle::new([(from, 36), (to, 76)], color.filled()))?;
            let y = 92 + 22 * i32::try_from(number)?;
            area.draw(&Rectangle::new([(10, y), (24, y + 14)], color.filled()))?;
            area.draw(&Text::new(format!("{step}: {median:.1}"), (32, y + 1), text(13, BLACK)))?;
            before += median;
        }
        Ok(())
    })
}

/// A value for each number of Services; a line for each number of nodes.
fn lines(results: &Results, what: &str, value: fn(&crate::cost::Cost) -> f64) -> Result<String> {
    let services = results.cost.iter().map(|cost| cost.services);
    let most = services.max().context("the cost was not measured")?;
    let highest = results.cost.iter().map(value).fold(1.0, f64::max) * 1.25;
    let range: Range<f64> = 1.0..f64::from(u32::try_from(most)?) * 1.2;
    let mut nodes: Vec<u8> = results.cost.iter().map(|cost| cost.nodes).collect();
    nodes.dedup();
    drawn(360, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(what, text(15, BLACK))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d(range.log_scale(), 0.0..highest)?;
        chart
            .configure_mesh()
            .light_line_style(GREY.mix(0.1))
            .x_desc("Services")
            .x_label_formatter(&|value| format!("{value:.0}"))
            .label_style(text(12, BLACK))
            .draw()?;
        for (nodes, color) in nodes.iter().zip([OURS, THEIRS, GREY]) {
            let points: Vec<(f64, f64)> = results
                .cost
                .iter()
                .filter(|cost| cost.nodes == *nodes)
                .map(|cost| Ok((f64::from(u32::try_from(cost.services)?), value(cost))))
                .collect::<Result<_>>()?;
            chart
                .draw_series(
                    LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3),
                )?
                .label(format!("{nodes} nodes"))
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2))
                });
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

/// The share of new connections that failed, for each second after the power of the owner's node was cut; a line for
/// each system, by the medians of its trials.
fn service(trials: &[Trial]) -> Result<String> {
    let cut: Vec<_> = trials.iter().filter(|it| it.fault == Fault::PowerCut.to_string()).collect();
    let mut systems: Vec<&str> = Vec::new();
    for trial in &cut {
        if !systems.contains(&trial.system.as_str()) {
            systems.push(&trial.system);
        }
    }
    drawn(360, |area| {
        let caption = "power of the owner's node cut, with a third of the pods: new connections that failed, %";
        let mut chart = ChartBuilder::on(area)
            .caption(caption, text(15, BLACK))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d(0.0..70.0, 0.0..100.0)?;
        chart
            .configure_mesh()
            .light_line_style(GREY.mix(0.1))
            .x_desc("seconds after the cut")
            .label_style(text(12, BLACK))
            .draw()?;
        for (system, color) in
            systems.iter().zip([GREY, THEIRS, STEPS[3], STEPS[6], STEPS[4], OURS])
        {
            let points = (0..70_u32).filter_map(|second| {
                let at = usize::try_from(second).ok()?;
                let shares = cut.iter().filter(|it| it.system == *system).filter_map(|it| {
                    let (failed, all) = *it.seconds.get(at)?;
                    let count = |count: usize| u32::try_from(count).ok().map(f64::from);
                    Some(100.0 * count(failed)? / count(all).filter(|all| *all > 0.0)?)
                });
                Some((f64::from(second) + 0.5, Spread::of(shares)?.median))
            });
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                .label(system_title(system))
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The names of the lines of a chart.
fn legend<'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, C>,
    position: SeriesLabelPosition,
) -> Result<()> {
    chart
        .configure_series_labels()
        .position(position)
        .label_font(text(13, BLACK))
        .border_style(GREY)
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

/// To the nearest point of the picture.
fn rounded(value: f64) -> Result<i32> {
    // Pictures are small.
    format!("{value:.0}").parse().context("not a number of points")
}
