package analysis_test

import (
	"fmt"

	"tallystick/query/search/analysis"
)

func Example() {
	for _, t := range analysis.Tokens("Fixed the retries in queryContext") {
		fmt.Println(t.Term, t.Whole)
	}
	// Output:
	// fix false
	// retri false
	// queri false
	// context false
	// querycontext true
}
