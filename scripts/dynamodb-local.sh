#!/bin/sh
# Fetches Amazon's DynamoDB Local for the tests, once for all checkouts: into the user's cache, by Maven, pinned.
set -eu

version=2.6.1
folder=${XDG_CACHE_HOME:-$HOME/.cache}/staffetta/dynamodb-local-$version

for jar in "$folder"/lib/DynamoDBLocal-*.jar; do
    [ ! -e "$jar" ] || exit 0
done

missing() {
    echo "MISSING: DynamoDB Local ($1) — its tests are skipped here"
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

command -v java >/dev/null 2>&1 || missing "it needs Java 17; on Debian: apt-get install openjdk-17-jre-headless"
command -v mvn >/dev/null 2>&1 || missing "Maven fetches it; on Debian: apt-get install maven"

echo "Fetching DynamoDB Local $version into $folder …"
mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>staffetta</groupId><artifactId>engines</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.amazonaws</groupId><artifactId>DynamoDBLocal</artifactId><version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
if ! (cd "$work" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime) >"$work/log" 2>&1
then
    tail -20 "$work/log"
    missing "Maven could not fetch it, see above"
fi
# Whole or not at all: whoever looks at the same time finds either nothing or everything.
mv "$work/lib" "$folder/lib" 2>/dev/null || true
