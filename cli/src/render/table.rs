//! Tables without lines, as Slurm's commands print them.

use comfy_table::{ContentArrangement, Table, presets};

/// Rows in columns under their titles, two blanks apart.
pub(crate) fn table(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(titles.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_with_their_text() {
        let rows = vec![
            vec!["1".into(), "long value".into(), String::new()],
            vec!["100".into(), "v".into(), "end".into()],
        ];
        let expected = "JOB  NAME        X\n1    long value\n100  v           end\n";
        assert_eq!(table(&["JOB", "NAME", "X"], rows), expected);
    }
}
