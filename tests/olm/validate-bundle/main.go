// validate-bundle runs the validators of the Operator Framework on a bundle: those of every bundle, those
// of OperatorHub.io, and those that are optional. It prints what they say and fails on each error, and on
// each warning that is not among the accepted ones.
//
//	validate-bundle FOLDER
package main

import (
	"fmt"
	"os"
	"regexp"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// All validators, but for that of images: it asks a registry which platforms they are for.
var validators = interfaces.Validators{
	validation.PackageManifestValidator,
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.BundleValidator,
	validation.OperatorHubV2Validator,
	validation.StandardCategoriesValidator,
	validation.StandardCapabilitiesValidator,
	validation.ObjectValidator,
	validation.OperatorGroupValidator,
	validation.CommunityOperatorValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

// Warnings that are none here.
var accepted = []*regexp.Regexp{
	// Roles name no version; v1 of these groups is what is used.
	regexp.MustCompile(`removed in v1\.25.*Migrate the API\(s\) for` +
		` ?((events|endpointslices): \(\["[^)]*ClusterPermissions[^)]*\]\),){2} ?$`),
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: validate-bundle FOLDER")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	objects := []interface{}{bundle, bundle.CSV}
	for _, definition := range bundle.V1CRDs {
		objects = append(objects, definition)
	}
	for _, object := range bundle.Objects {
		objects = append(objects, object)
	}

	bad := 0
	for _, result := range validators.Validate(objects...) {
		for _, problem := range result.Errors {
			fmt.Println("error:", problem.Error())
			bad++
		}
		for _, problem := range result.Warnings {
			fine := false
			for _, accept := range accepted {
				fine = fine || accept.MatchString(problem.Error())
			}
			if !fine {
				fmt.Println("warning:", problem.Error())
				bad++
			}
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
	fmt.Printf("%s: %d manifests are valid\n", bundle.CSV.Name, len(bundle.Objects))
}
