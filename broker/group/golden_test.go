package group

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the scripts' answers and the golden bytes in testdata")

// compareGolden compares with a file in testdata, or rewrites it.
func compareGolden(t *testing.T, file, got, hint string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs. %s\n%s", file, hint, got)
	}
}
