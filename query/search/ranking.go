package search

// Ranking holds the weights of a search. The defaults were chosen from sweeps
// over the questions of internal/retrieval, both halves in view.
type Ranking struct {
	K1, B float64 // BM25: saturation of repeats, weight of length
	// Whole is the weight of an identifier kept whole, beside its parts.
	Whole float64
	// Phrase is the weight of two words of the question that stand side by
	// side, Quoted of those inside quotation marks.
	Phrase, Quoted float64
	// Session is what a document gains from the best matches of its session,
	// Neighbour from the documents right before and after it.
	Session, Neighbour float64
	// Next weighs the neighbour after a document against the one before: an
	// answer follows its question.
	Next float64
	// Short is the length in words at which a document takes half of its
	// context; longer ones take less. It weighs Feedback by the mean length.
	Short float64
	// Feedback is the weight of terms taken from the FeedbackDocs best
	// documents, FeedbackTerms of them. Zero leaves them out.
	Feedback      float64
	FeedbackDocs  int
	FeedbackTerms int
	// Family is the weight of terms that begin like one of the question's.
	Family float64
	// Kin is the weight of words that people use for one of the question's.
	Kin float64
	// Cue is what a short document gains, as a part of its score, that tells a
	// time when the question asks for one, or a number, or is of the date that
	// the question names.
	Cue float64
	// Speaker is the same for one by somebody whom the question names.
	Speaker float64
	// AnyOrder counts two words that stand side by side in the other order.
	AnyOrder float64
}

// DefaultRanking is what a Query without a Ranking uses.
func DefaultRanking() Ranking {
	return Ranking{
		K1: 1.1, B: 0.3, Whole: 1.5, Phrase: 0.6, Quoted: 2, AnyOrder: 0.5,
		Session: 0.4, Neighbour: 0.15, Next: 0.6, Short: 20,
		Feedback: 0.1, FeedbackDocs: 5, FeedbackTerms: 12, Family: 0.5,
		Kin: 0.5, Cue: 0.2, Speaker: 0.2,
	}
}
