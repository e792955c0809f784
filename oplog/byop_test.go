package oplog

import (
	"context"
	"testing"

	"tallystick/hlc"
)

// TestA2_MakeFindsEarlierOps: the body of an op can depend on what the op
// before it in the same Append has become.
func TestA2_MakeFindsEarlierOps(t *testing.T) {
	l, err := Open(context.Background(), Config{InMemory: true, Signer: deviceKey("a"), Rand: seeded("a"), MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var found Hash
	ops := []Op{{Kind: kindErase, Author: "a", OpID: "first", Body: (&Erasure{Hashes: []Hash{{1}}}).body()}, {
		Kind: kindErase, Author: "a", OpID: "second",
		Make: func(views Views, _ hlc.Timestamp) ([]byte, error) {
			e, err := views.(Results).ByOp("a", "first")
			found = e.Hash
			return (&Erasure{Hashes: []Hash{e.Hash}}).body(), err
		},
	}}
	res, err := l.Append(context.Background(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	if found != res[0].Hash {
		t.Errorf("found %s, appended %s", found, res[0].Hash)
	}
}
