// Command retrieval measures search against naive ways of searching: recall at
// 5 and 10 and mean reciprocal rank over questions with known answers.
//
//	go run ./internal/retrieval/cmd/retrieval [-data FILE] [-misses]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"tallystick/internal/retrieval"
)

func main() {
	data := flag.String("data", "../shared/data/agent-work.beads.jsonl", "issue tracker's JSONL; without it only the fixture is measured")
	misses := flag.Bool("misses", false, "list the questions that were not answered")
	flag.Parse()
	if err := run(*data, *misses); err != nil {
		fmt.Fprintln(os.Stderr, "retrieval:", err)
		os.Exit(1)
	}
}

func run(data string, misses bool) error {
	corpora := []*retrieval.Corpus{retrieval.Fixture(), retrieval.Conversations()}
	switch c, err := retrieval.LoadBeads(data); {
	case err == nil:
		corpora = append(corpora, c)
	case os.IsNotExist(err):
		fmt.Fprintf(os.Stderr, "%s is not here; only the fixture is measured\n", data)
	default:
		return err
	}
	for _, c := range corpora {
		finders, err := retrieval.Finders(context.Background(), c)
		if err != nil {
			return err
		}
		if err := retrieval.Table(os.Stdout, c, finders); err != nil {
			return err
		}
		if misses {
			s, err := retrieval.Measure(c, finders[len(finders)-1], func(retrieval.Question) bool { return true })
			if err != nil {
				return err
			}
			for _, q := range s.Missed {
				fmt.Printf("missed: %s: %s: %v\n", q.Category, q.Text, q.Expect)
			}
		}
		fmt.Println()
	}
	return nil
}
