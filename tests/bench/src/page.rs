//! Where results are written: charts and a page, and what stands between marks in the documentation.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{Options, chart, lab::Lab, report, results::Results, rounds::Plan};

/// A full run renews the documentation; any other leaves its results in `target/bench`.
pub fn write(lab: &Lab, options: &Options, results: &Results, plan: Plan) -> Result<()> {
    let full = !options.quick && options.only.is_empty();
    let docs = options.docs.clone().filter(|_| full);
    let folder = docs.clone().unwrap_or_else(|| lab.target.join("bench"));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (name, svg) in chart::all(results) {
        std::fs::write(folder.join(name), svg).with_context(|| folder.join(name).display().to_string())?;
    }
    let (goals, tables) = (report::goals_markdown(&results.goals()), report::page(lab, results, plan));
    match docs {
        Some(docs) => {
            renew(&docs.join("performance.md"), &[("goals", &goals), ("tables", &tables)])?;
            renew(&docs.join("../README.md"), &[("summary", &report::summary(results))])?;
            println!("written: {} and its charts", docs.join("performance.md").display());
        }
        None => {
            std::fs::write(folder.join("results.md"), format!("{goals}\n{tables}"))?;
            println!("written: {} and charts beside it", folder.join("results.md").display());
        }
    }
    Ok(())
}

fn renew(file: &Path, parts: &[(&str, &str)]) -> Result<()> {
    let mut text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    for (name, new) in parts {
        text = between(&text, name, new).with_context(|| format!("{} has no marks `bench:{name}`", file.display()))?;
    }
    std::fs::write(file, text).with_context(|| file.display().to_string())
}

/// `text` with `new` between the two marks of `name`.
fn between(text: &str, name: &str, new: &str) -> Option<String> {
    let (open, close) = (format!("<!-- bench:{name} -->"), format!("<!-- /bench:{name} -->"));
    let start = text.find(&open)? + open.len();
    let end = start + text[start..].find(&close)?;
    Some(format!("{}\n\n{}\n\n{}", &text[..start], new.trim(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_renewed_and_nothing_else() {
        let text = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb";
        assert_eq!(between(text, "x", "new\n").as_deref(), Some("a\n<!-- bench:x -->\n\nnew\n\n<!-- /bench:x -->\nb"));
        assert_eq!(between(text, "y", "new"), None);
        assert_eq!(between("<!-- bench:x -->", "x", "new"), None);
    }
}
