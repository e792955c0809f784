package document_test

import (
	"fmt"

	"tallystick/query/document"
)

func Example() {
	index := map[string]document.Document{}
	for _, d := range []document.Document{
		{ID: "mem_1", Kind: "fact", State: document.Live, Text: "the port is 7716"},
		{ID: "mem_1", Kind: "fact", State: document.Superseded, Text: "the port is 7716"},
		{ID: "mem_2", Kind: "fact", State: document.Live, Text: "the port is 7717"},
	} {
		index[d.ID] = d // the later one of an id takes the place of the earlier
	}
	fmt.Println(index["mem_1"].State, index["mem_2"].State)
	// Output: superseded live
}
