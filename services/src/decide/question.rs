//! A question about an input, and the options among which it is decided.

/// A question whose options are two or more, no two alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionQuestion {
    /// What it goes by, for the caller, for the model and in the file of temperatures.
    pub name: Option<String>,
    /// What is asked, or stated.
    pub instructions: String,
    /// How its answer looks.
    pub kind: QuestionKind,
    /// The options, those of a score from the lowest to the highest.
    pub options: Vec<DecisionOption>,
}

/// The kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    /// Whether a statement about the input is true.
    Predicate,
    /// Which of the options fits best.
    Choice,
    /// Which of ordered levels is reached.
    Score,
}

/// One option of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionOption {
    /// What is chosen with it.
    pub value: OptionValue,
    /// What it means, for the model.
    pub description: Option<String>,
}

/// What an option is: `true` and `"true"` are two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OptionValue {
    /// A text, which is not empty.
    Text(String),
    /// One of the two booleans.
    Flag(bool),
}

impl DecisionQuestion {
    /// The question whether a statement is true; its first option is that it is.
    pub fn predicate(name: Option<String>, instructions: String) -> Self {
        let options = [true, false].map(|flag| DecisionOption { value: OptionValue::Flag(flag), description: None });
        Self { name, instructions, kind: QuestionKind::Predicate, options: options.into() }
    }

    /// Whether the order in which its options are shown is nobody's meaning: levels have an order of their own, and
    /// the two booleans are not listed.
    pub fn may_turn(&self) -> bool {
        self.kind == QuestionKind::Choice && !self.is_boolean()
    }

    /// Whether its options are the two booleans.
    pub fn is_boolean(&self) -> bool {
        self.options.len() == 2 && self.options.iter().all(|option| matches!(option.value, OptionValue::Flag(_)))
    }
}

impl QuestionKind {
    /// Its name, in requests and as a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Predicate => "predicate",
            Self::Choice => "choice",
            Self::Score => "score",
        }
    }
}
