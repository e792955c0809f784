package main

import (
	"encoding/json"
	"errors"
	"testing"

	"tallystick/server"
)

// Bad input of issue 2: what is typed or read from a file is stored as it is
// or refused by name, never mended. JSON has no way to carry bytes that are not
// UTF-8, and the encoder would put U+FFFD in their place.
func TestBadInput_BytesThatAreNotUTF8(t *testing.T) {
	for name, v := range map[string]any{
		"body":                  "caf\xe9",
		"to_agent":              "a:b:c\xff",
		"summary":               "half a surrogate \xed\xa0\x80",
		"sourceAgentIdentities": []string{"a:b:c", "x\xff"},
		"metadata":              json.RawMessage("{\"a\":\"\xff\"}"),
	} {
		raw, err := args{"aa": "fine", name: v, "zz": "\U0001f600"}.encode()
		var e *server.Error
		if !errors.As(err, &e) || e.Code != server.CodeInvalidArgument || e.Field != name || e.Hint == "" {
			t.Errorf("%s: encoded as %s, error %v", name, raw, err)
		}
	}
	raw, err := args{"body": "café \ufffd \x01", "n": int64(5), "list": []string{"ü"}, "metadata": json.RawMessage(`{"a":1}`)}.encode()
	if err != nil || string(raw) != `{"body":"café `+"\ufffd"+` \u0001","list":["ü"],"metadata":{"a":1},"n":5}` {
		t.Errorf("encoded as %s, error %v", raw, err)
	}
}
