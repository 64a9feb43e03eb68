//! Line-by-line difference of two texts, with context.

/// Lines of context around a change.
const AROUND: usize = 3;

/// Removed (`-`) and added (`+`) lines with their context.
pub fn lines(expected: &str, got: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), got.lines().collect());
    let marked = marked(&a, &b);
    let near = |at: usize| {
        let around = at.saturating_sub(AROUND)..(at + AROUND + 1).min(marked.len());
        marked[around].iter().any(|(mark, _)| *mark != ' ')
    };
    let shown = marked.iter().enumerate().filter(|(at, _)| near(*at));
    shown.map(|(_, (mark, line))| format!("{mark} {line}\n")).collect()
}

/// Every line of both texts with its mark, along a longest common subsequence.
fn marked<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let mut i = 0;
    let mut j = 0;
    let mut marked = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            marked.push((' ', a[i]));
            i += 1;
            j += 1;
        } else if j == b.len() || i < a.len() && common[i + 1][j] >= common[i][j + 1] {
            marked.push(('-', a[i]));
            i += 1;
        } else {
            marked.push(('+', b[j]));
            j += 1;
        }
    }
    marked
}

#[test]
fn a_changed_line_is_shown_with_context() {
    let old = "1\n2\n3\n4\n5\n6\n7\n8\n9";
    let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9";
    assert_eq!(lines(old, new), "  2\n  3\n  4\n- 5\n+ five\n  6\n  7\n  8\n");
}
