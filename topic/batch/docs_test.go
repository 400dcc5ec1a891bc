package batch_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

// The example of the format's page is a batch, and the one that the text says it is.
func TestExampleInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/record-batch.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```hex\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("there is no block of hex")
	}
	var digits strings.Builder
	for line := range strings.Lines(string(block[1])) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	got, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	want := build(t, batch.Options{}, topic.Record{
		Timestamp: 1762077600123, Key: []byte("user-42"), Value: []byte(`{"total":12.50}`),
		Headers: []topic.Header{{Name: "trace", Value: []byte("abc")}},
	})
	batch.Stamp(want, 1041, 7)
	if !bytes.Equal(got, want) {
		t.Fatalf("the page has\n%x\nand it should be\n%x", got, want)
	}
	if n := compare(t, got, 0); n != 1 {
		t.Fatal(n)
	}
}
