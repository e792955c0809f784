package search_test

import (
	"context"
	"fmt"

	"tallystick/query/search"
)

func Example() {
	ctx := context.Background()
	x, err := search.Open(ctx, search.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	err = x.Put(ctx,
		search.Document{ID: "mem_1", Kind: "fact", Text: "The daemon retries an upload three times"},
		search.Document{ID: "mem_2", Kind: "fact", Text: "queryContext is cancelled when a client leaves"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"how often are uploads retried", "query_context", "deamon"} {
		res, err := x.Search(ctx, search.Query{Text: text, Limit: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, h := range res.Hits {
			fmt.Println(h.ID, "-", h.Why)
		}
	}
	// Output:
	// mem_1 - words uploads, retried; side by side; looks like an answer
	// mem_2 - words query, context; identifiers query_context; side by side
	// mem_1 - spelt like daemon for deamon
}
