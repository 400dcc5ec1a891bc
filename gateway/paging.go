package gateway

import (
	"encoding/base64"
	"math"
	"strconv"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// How many items a page of a list has.
const (
	defaultPageSize = 100
	mostPageSize    = 1000
)

// pageSize reads the parameter page_size.
func pageSize(n *int) (int, error) {
	if n == nil {
		return defaultPageSize, nil
	}
	if *n < 1 || *n > mostPageSize {
		return 0, problem.FieldError("gateway.Page", "page_size", "must be from 1 to %d", mostPageSize)
	}
	return *n, nil
}

// pageToken is where the next page begins. To clients it is opaque.
func pageToken(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }

// pageAfter is the name that the page before ended with; empty on the first page.
func pageAfter[Name ~string](token *string, parse func(string) (Name, error)) (Name, error) {
	if token == nil || *token == "" {
		return "", nil
	}
	last, err := base64.RawURLEncoding.Strict().DecodeString(*token)
	if err != nil {
		return "", badPageToken()
	}
	name, err := parse(string(last))
	if err != nil {
		return "", badPageToken()
	}
	return name, nil
}

func pagePartition(token *string) (int, error) {
	if token == nil || *token == "" {
		return 0, nil
	}
	first, err := base64.RawURLEncoding.Strict().DecodeString(*token)
	if err != nil {
		return 0, badPageToken()
	}
	n, err := strconv.ParseUint(string(first), 10, 31)
	if err != nil || n > math.MaxInt32-mostPageSize {
		return 0, badPageToken()
	}
	return int(n), nil
}

func badPageToken() error {
	return fault.Newf("gateway.Page", fault.BadRequest, nil, "page_token is not the next_page_token of an answer of this list")
}
