package main

import (
	"strings"
	"testing"
)

func TestOnlyCalledFunctionsCountAndListedOnesAreAccepted(t *testing.T) {
	stream := `{"config":{}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"stdlib","version":"v1.1.0","package":"net/http","function":"Serve"}]}}
{"finding":{"osv":"GO-2","fixed_version":"v1.2.0","trace":[{"module":"stdlib","version":"v1.1.0","package":"net/http"}]}}
`
	called, err := findings([]byte(stream))
	if err != nil || len(called) != 1 || called["GO-1"].function != "net/http.Serve" {
		t.Fatalf("got %v, %v", called, err)
	}
	if err := judge(called, nil); err == nil || !strings.Contains(err.Error(), "GO-1") {
		t.Fatalf("an unlisted finding passed: %v", err)
	}
	if err := judge(called, map[string]string{"GO-1": "not to be had"}); err != nil {
		t.Fatal(err)
	}
}

func TestAnAcceptedFindingNeedsAReason(t *testing.T) {
	if _, err := parseAccepted("# heading\nGO-1\n"); err == nil {
		t.Fatal("a line without a reason was taken")
	}
	reasons, err := parseAccepted("GO-1  because\n")
	if err != nil || reasons["GO-1"] != "because" {
		t.Fatalf("got %v, %v", reasons, err)
	}
	if _, err := findings([]byte("{")); err == nil {
		t.Fatal("a cut stream was taken for a clean one")
	}
}
