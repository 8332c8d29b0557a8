//! Charts as SVG, written by hand: bars with their values, and lines.

use std::fmt::Write as _;

use crate::{report::time, results::Results, rounds::Series, stats::Spread};

const WIDTH: f64 = 760.0;
const OURS: &str = "#1a7f37";
const OTHERS: &str = "#8c959f";

/// One bar.
struct Bar {
    name: String,
    value: f64,
    label: String,
}

/// Charts by the name of their file.
pub fn all(results: &Results) -> Vec<(&'static str, String)> {
    let mut charts = Vec::new();
    let cpu = |key: &str| {
        let table = results.table(key);
        let series: Vec<&Series> = table.map_or(Vec::new(), |table| table.series.iter().collect());
        let median = |numbers: Vec<f64>| Spread::of(numbers).map(|s| s.median);
        series.into_iter().filter_map(|s| Some((s.name.clone(), median(s.cpu())?, median(s.rates())?))).collect::<Vec<_>>()
    };
    let mut small = cpu("small-32");
    // The same subject with two servers where one server is not what they are for.
    small.extend(cpu("two-32").into_iter().filter(|(name, ..)| name != "Lockgate"));
    if !small.is_empty() {
        let bars = small.iter().map(|(name, cpu, _)| Bar { name: name.clone(), value: *cpu, label: time(*cpu) });
        charts.push((
            "cpu-per-call.svg",
            bars_of("Processor time of the hop for a call of 200 bytes, 32 sessions (shorter is better)", bars.collect()),
        ));
    }
    let structured = cpu("structured");
    if !structured.is_empty() {
        let bars = structured.iter().map(|(name, cpu, _)| Bar { name: name.clone(), value: *cpu, label: time(*cpu) });
        charts.push(("cpu-structured.svg", bars_of("The same for a structured result of 16 KiB, 16 sessions", bars.collect())));
    }
    if !results.held.is_empty() {
        let mut bars = Vec::new();
        for held in &results.held {
            let mut bar = |what: &str, kib: Option<f64>| {
                if let Some(kib) = kib.filter(|kib| *kib > 0.05) {
                    bars.push(Bar { name: format!("{}, {what}", held.name), value: kib, label: format!("{kib:.1} KiB") });
                }
            };
            bar("idle", Some(held.idle));
            bar("connected", Some(held.with_connection));
            bar("with a stream", held.with_stream);
        }
        charts.push(("memory-per-session.svg", bars_of("Memory of a session (shorter is better)", bars)));
    }
    let points = |key: &str| -> Vec<(f64, f64)> {
        // Those with a remark in brackets are somebody else's.
        let number = |name: &str| name.split(' ').next().filter(|_| !name.contains('(')).and_then(|n| n.parse().ok());
        cpu(key).iter().filter_map(|(name, cpu, _)| Some((number(name)?, *cpu))).collect()
    };
    let (sessions, tools) = (points("sessions"), points("tools"));
    if sessions.len() > 1 && tools.len() > 1 {
        charts.push(("growth.svg", growth(&sessions, &tools)));
    }
    charts
}

fn bars_of(title: &str, bars: Vec<Bar>) -> String {
    const ROW: f64 = 26.0;
    const LEFT: f64 = 250.0;
    let height = 50.0 + ROW * bars.len() as f64;
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut out = open(height, title);
    for (row, bar) in bars.iter().enumerate() {
        let y = 40.0 + ROW * row as f64;
        let colour = if bar.name.starts_with("Lockgate") { OURS } else { OTHERS };
        let length = (bar.value / most * (WIDTH - LEFT - 100.0)).max(1.0);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, y + 14.0, escape(&bar.name));
        let _ = writeln!(out, "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>", ROW - 8.0);
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{}\">{}</text>", LEFT + length + 6.0, y + 14.0, escape(&bar.label));
    }
    out + "</svg>\n"
}

/// Two small charts side by side: calls beside more sessions, and lists of more tools.
fn growth(sessions: &[(f64, f64)], tools: &[(f64, f64)]) -> String {
    let mut out = open(280.0, "How the processor time grows");
    out += &line(sessions, 60.0, "a call of 200 bytes, by sessions that exist");
    out += &line(tools, 440.0, "tools/list, by the number of tools");
    out + "</svg>\n"
}

/// From zero, so that what is linear looks it.
fn line(points: &[(f64, f64)], left: f64, title: &str) -> String {
    const TOP: f64 = 70.0;
    const BOTTOM: f64 = 235.0;
    const WIDE: f64 = 280.0;
    let far = points.iter().map(|p| p.0).fold(1.0, f64::max);
    let high = points.iter().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max) * 1.15;
    let at = |(x, y): (f64, f64)| (left + x / far * WIDE, BOTTOM - y / high * (BOTTOM - TOP));
    let mut out = format!("<text x=\"{left}\" y=\"{}\">{}</text>\n", TOP - 20.0, escape(title));
    let _ = writeln!(out, "<path d=\"M{left} {TOP}V{BOTTOM}H{}\" fill=\"none\" stroke=\"#888\"/>", left + WIDE);
    let path: Vec<String> = points.iter().map(|p| at(*p)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{OURS}\" stroke-width=\"2\" points=\"{}\"/>", path.join(" "));
    for point in points {
        let (x, y) = at(*point);
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{OURS}\"/>");
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", y - 9.0, escape(&time(point.1)));
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", BOTTOM + 18.0, point.0);
    }
    out
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"16\" y=\"22\" font-size=\"14\">{}</text>\n",
        escape(title)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_names_are_escaped() {
        let bar = |name: &str, value| Bar { name: name.into(), value, label: String::new() };
        let svg = bars_of("t", vec![bar("Lockgate", 1.0), bar("<b>", 2.0)]);
        assert!(svg.contains("width=\"205.0\"") && svg.contains("width=\"410.0\"") && svg.contains("&lt;b&gt;"), "{svg}");
    }
}
