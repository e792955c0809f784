package artifact_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"tallystick/query/artifact"
	"tallystick/query/internal/foldtest"
)

// FuzzDecode: what a peer writes is an artifact that encodes to the same bytes,
// or is set aside.
func FuzzDecode(f *testing.F) {
	a := artifact.Artifact{Kind: "patch", Hash: sum("x"), Size: 1, Metadata: json.RawMessage(`{"a":1}`), Warnings: []string{artifact.WarnCR}}
	f.Add(a.Append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		e := foldtest.Entry(1, 1, foldtest.At(0), artifact.Kind, "mac:claude:x", body)
		a, err := artifact.Decode(&e)
		if err != nil {
			return
		}
		if again := a.Append(nil); !bytes.Equal(again, body) {
			t.Fatalf("%x encodes as %x", body, again)
		}
		if err := (artifact.View{}).Apply(foldtest.NewTx(), &e); err == nil && len((artifact.View{}).Blobs(&e)) != 1 {
			t.Error("folded, and names no content")
		}
	})
}
