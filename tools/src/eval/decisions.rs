//! `chimere eval decisions`: how often a running service decides questions right whose answers are known, how far its
//! probabilities are to be believed, and the temperature of each question's name that makes them so.

use crate::CliError;
use crate::client::{Credentials, ServiceClient};
use chimere::decide::{Temperatures, at_temperature, confidence, fit};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Asks questions of `/v1/decisions` whose answers are known, prints how many were right and how sure the model was,
/// and fits a temperature for each question's name.
#[derive(clap::Args, Debug, Clone)]
pub struct DecisionsArgs {
    /// Address of the running service.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// File with an API key.
    #[arg(long, value_name = "F")]
    pub api_key_file: Option<PathBuf>,
    /// Questions, an object a line: `input` and `question` as in a request, and the `answer`.
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    /// Orders in which options are shown [default: the service's].
    #[arg(long, value_name = "N")]
    pub orders: Option<u32>,
    /// Write the temperatures here, for `decide.calibration`.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Bins of confidence over which the error of calibration is counted.
const BINS: usize = 10;
/// Questions of one name below which no temperature is fitted: a few lines say nothing of the next ones.
const FITTED_MIN: usize = 20;

/// A question that was decided: its options' probabilities, and the number of the right one.
type Judged = (Vec<f64>, usize);

pub(super) fn run(args: &DecisionsArgs) -> Result<(), CliError> {
    let decided = actix_rt::System::new().block_on(ask_all(args))?;
    let mut calibration = Temperatures::default();
    for (name, all) in &decided {
        let answers: Vec<Judged> = all.iter().map(|one| one.decided.clone()).collect();
        let fitted = (answers.len() >= FITTED_MIN).then(|| fit(&answers));
        print!("{}", report(name, all, fitted.is_some().then(|| crosswise(&answers)).as_deref(), fitted));
        if let Some(temperature) = fitted.filter(|_| !name.is_empty()) {
            calibration.set(name.clone(), temperature);
        }
    }
    if decided.len() > 1 {
        let every: Vec<JudgedQuestion> = decided.into_values().flatten().collect();
        print!("{}", report("all", &every, None, None));
    }
    let Some(path) = &args.out else { return Ok(()) };
    std::fs::write(path, calibration.to_string()).map_err(|e| at(path, e))
}

/// A question that was decided, in words.
struct JudgedQuestion {
    decided: Judged,
    right: String,
    chosen: String,
}

async fn ask_all(args: &DecisionsArgs) -> Result<BTreeMap<String, Vec<JudgedQuestion>>, CliError> {
    let text = std::fs::read_to_string(&args.questions).map_err(|e| at(&args.questions, e))?;
    let access = Credentials { key_file: args.api_key_file.as_deref(), ..Credentials::default() };
    let service = ServiceClient::new(&args.url, access)?;
    let mut all: BTreeMap<String, Vec<JudgedQuestion>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |e: String| CliError::Failed(format!("{} line {}: {e}", args.questions.display(), number + 1));
        let asked: Value = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        let body =
            json!({"input": asked["input"], "questions": [asked["question"]], "orders": args.orders, "raw": true});
        let reply = service.post("/v1/decisions", &body).await.map_err(|e| wrong(e.to_string()))?;
        let one = decided(&reply["answers"][0], &asked["answer"]).map_err(wrong)?;
        all.entry(asked["question"]["name"].as_str().unwrap_or_default().to_owned()).or_default().push(one);
    }
    if all.is_empty() { Err(at(&args.questions, "wanted questions, got none")) } else { Ok(all) }
}

/// Reads an answer beside the known one.
fn decided(answer: &Value, right: &Value) -> Result<JudgedQuestion, String> {
    let (options, probabilities): (Vec<Value>, Vec<f64>) = match (&answer["probability"], &answer["probabilities"]) {
        (Value::Number(p), _) => {
            let p = p.as_f64().unwrap_or_default();
            (vec![json!(true), json!(false)], vec![p, 1.0 - p])
        }
        (_, Value::Array(all)) => {
            let label = if answer["type"] == "score" { "label" } else { "value" };
            all.iter().map(|one| (one[label].clone(), one["probability"].as_f64().unwrap_or_default())).unzip()
        }
        _ => return Err(format!("wanted probabilities, got {answer}")),
    };
    let place = options.iter().position(|option| option == right);
    let place = place.ok_or_else(|| format!("`answer` {right} is none of the question's options"))?;
    let chosen = options[best(&probabilities)].to_string();
    Ok(JudgedQuestion { decided: (probabilities, place), right: right.to_string(), chosen })
}

fn best(probabilities: &[f64]) -> usize {
    let most = confidence(probabilities);
    probabilities.iter().position(|p| *p == most).unwrap_or(0)
}

/// Each half of the answers at the temperature that fits the other half, so that nothing is judged by what it was
/// fitted to.
fn crosswise(answers: &[Judged]) -> Vec<Judged> {
    let half = |odd: usize| answers.iter().enumerate().filter(move |(at, _)| at % 2 == odd).map(|(_, one)| one.clone());
    let temperatures = [1, 0].map(|other| fit(&half(other).collect::<Vec<_>>()));
    let at = |(place, (p, right)): (usize, &Judged)| (at_temperature(p, temperatures[place % 2]), *right);
    answers.iter().enumerate().map(at).collect()
}

/// The expected error of calibration: how far confidence is from the share that was right, in bins of confidence.
fn calibration_error(answers: &[Judged]) -> f64 {
    let mut bins = [0.0; BINS];
    for (probabilities, right) in answers {
        let sure = confidence(probabilities);
        let place = ((sure * BINS as f64) as usize).min(BINS - 1);
        bins[place] += sure - f64::from(u8::from(best(probabilities) == *right));
    }
    bins.iter().map(|bin: &f64| bin.abs()).sum::<f64>() / answers.len() as f64
}

fn report(name: &str, all: &[JudgedQuestion], after: Option<&[Judged]>, fitted: Option<f64>) -> String {
    let answers: Vec<Judged> = all.iter().map(|one| one.decided.clone()).collect();
    let right = answers.iter().filter(|(p, right)| best(p) == *right).count();
    let shown = if name.is_empty() { "(unnamed)" } else { name };
    let mut text = format!(
        "{shown}: {right} of {} right ({:.1} %), ECE {:.4}",
        all.len(),
        100.0 * right as f64 / all.len() as f64,
        calibration_error(&answers)
    );
    if let (Some(after), Some(temperature)) = (after, fitted) {
        let _ = write!(
            text,
            ", {:.4} at a temperature fitted to the other half; {temperature:.3}",
            calibration_error(after)
        );
    }
    text.push('\n');
    let mut confused: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    all.iter()
        .filter(|one| one.right != one.chosen)
        .for_each(|one| *confused.entry((&one.right, &one.chosen)).or_default() += 1);
    for ((right, chosen), times) in confused {
        let _ = writeln!(text, "  {right} decided as {chosen}: {times}");
    }
    text
}

fn at(path: &Path, e: impl std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_calibration_is_what_confidence_promises_too_much_or_too_little() {
        // Sure at 0.9 and right in 3 of 4; sure at 0.6 and right in 1 of 1.
        let mut all: Vec<Judged> = (0..4).map(|i| (vec![0.9, 0.1], usize::from(i > 2))).collect();
        all.push((vec![0.4, 0.6], 1));
        assert!((calibration_error(&all) - (0.6 + 0.4) / 5.0).abs() < 1e-12);
    }

    #[test]
    fn answers_of_each_type_are_read_beside_the_known_one() {
        let yes = decided(&json!({"type": "predicate", "probability": 0.25}), &json!(false)).unwrap();
        assert_eq!((yes.decided, yes.chosen), ((vec![0.25, 0.75], 1), "false".into()));
        let list = json!([{"value": "true", "probability": 0.1}, {"value": true, "probability": 0.9}]);
        let choice = json!({"type": "choice", "probabilities": list});
        assert_eq!(decided(&choice, &json!(true)).unwrap().decided.1, 1);
        assert!(decided(&choice, &json!("maybe")).err().unwrap().contains("\"maybe\""));
        let level = |label: &str, p: f64| json!({"label": label, "value": 0, "probability": p});
        let levels = [level("low", 0.7), level("high", 0.3)];
        assert_eq!(decided(&json!({"type": "score", "probabilities": levels}), &json!("high")).unwrap().decided.1, 1);
    }
}
